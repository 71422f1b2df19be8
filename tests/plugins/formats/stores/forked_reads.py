"""A read in a forked child, and then in its parent; prints the hash of each."""

from __future__ import annotations

import hashlib
import os

from infeed_server.storage.files import read_bytes


def _print_hash() -> None:
    content = read_bytes("s3://bkt/a/x y.bin")
    print(hashlib.md5(content).hexdigest(), flush=True)


if (child := os.fork()) == 0:
    _print_hash()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
_print_hash()
