"""Requests in flight at the end of a process, which takes a second after it has begun."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from infeed_server.storage.files import read_bytes


class LastObject:
    """Is deleted when the interpreter has begun to end: a return to Python is an error then."""

    def __del__(self, write: Any = os.write, sleep: Any = time.sleep) -> None:
        write(1, b"ending\n")
        sleep(1.0)


last_object = LastObject()
for _ in range(50):
    threading.Thread(target=read_bytes, args=("s3://bkt/a",), daemon=True).start()
input()
