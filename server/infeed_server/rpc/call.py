"""One gRPC call as handlers see it: peer, caller, counters and log lines."""

from __future__ import annotations

import logging
import ssl
import time
import urllib.parse
from typing import Any

import grpc

from infeed_server.serving.instrument import ConnectedTrainer

log = logging.getLogger(__name__)

_MAX_LOGGED_METHOD_CHARS = 200
_MAX_FEED_ID_CHARS = 8
"""Maximum characters logged of texts that the client chooses: a method's name and a feed's id."""


class ServerCall:
    """A grpcio call with infeed's data about it."""

    def __init__(self, method: str, context: Any) -> None:
        self.method = method
        self.context = context
        """The context of grpcio. Its callbacks must not block: one thread runs them all and reads
        all events."""
        self.caller: Any = None
        """Set by `Admission`, for handlers."""
        self.trainer: ConnectedTrainer | None = None
        """The trainer of a stream of batches; set by its handler, for the log."""
        self.status = grpc.StatusCode.CANCELLED
        """The status sent; CANCELLED if none was."""
        self.began_at = time.monotonic()
        self.sent_bytes = self.received_bytes = 0
        """Total sizes of its messages."""

    def peer(self) -> str:
        """Returns host:port, or `unix` for a client of a Unix socket."""
        scheme, _, address = self.context.peer().partition(":")
        return "unix" if scheme == "unix" else urllib.parse.unquote(address)

    def log_fields(self) -> dict[str, Any]:
        """Returns the JSON keys of log lines about this call."""
        if self.trainer is not None:
            return _trainer_fields(self.trainer)
        return {"peer": self.peer(), "method": self.method[:_MAX_LOGGED_METHOD_CHARS]}

    @property
    def authorization(self) -> str | None:
        metadata = self.context.invocation_metadata() or ()
        return next((str(value) for key, value in metadata if key == "authorization"), None)

    @property
    def client_certificate(self) -> bytes | None:
        """The client's verified certificate, DER; None without one."""
        pem = self.context.auth_context().get("x509_pem_cert")
        return ssl.PEM_cert_to_DER_cert(bytes(pem[0]).decode()) if pem else None


def log_trainer(event: str, trainer: ConnectedTrainer) -> None:
    """Logs that a trainer has connected or left."""
    fields: dict[str, Any] = {"event": event, **_trainer_fields(trainer)}
    text = (
        "trainer %(event)s: %(pipeline)s, rank %(rank)d of %(world_size)d, feed %(feed)s, "
        "position %(position)d, %(peer)s"
    )
    log.info(text, fields, extra={"fields": fields})


def _trainer_fields(trainer: ConnectedTrainer) -> dict[str, Any]:
    return {
        "pipeline": trainer.pipeline,
        "rank": trainer.rank,
        "world_size": trainer.world_size,
        "feed": ascii(trainer.feed_id[:_MAX_FEED_ID_CHARS])[1:-1],
        "position": trainer.position,
        "peer": trainer.peer,
    }
