"""`infeed serve` on grpcio's server: python -m tests.reference.serve serve FILE ..."""

from __future__ import annotations

from typing import Any

from tests.reference.grpcio_server import GrpcioServer

import infeed.cli
from infeed_server.runtime import server
from infeed_server.runtime.certificate import TLSFiles


def use_grpcio(patch: Any) -> None:
    """Replaces the server's transport; `patch(owner, name, value)` sets an attribute."""
    patch(server, "RpcServer", GrpcioServer)
    patch(TLSFiles, "reloading_context", lambda files: files)


if __name__ == "__main__":
    use_grpcio(setattr)
    infeed.cli.main()
