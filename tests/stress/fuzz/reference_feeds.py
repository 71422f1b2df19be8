"""Well-behaved trainers beside the fuzzing: what they get must not differ by a bit."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

from tests.stress.fuzz.server_under_test import NAMES

import infeed

_EPOCHS = 2
_PAUSE_SECONDS = 1.0


def digest(address: str, name: str) -> list[str]:
    """Of every batch of two epochs."""
    options: dict[str, Any] = {"epochs": _EPOCHS, "remainder": "pad", "prefetch_bytes": 1 << 20}
    with infeed.connect(address, name, **options) as feed:
        return [_digest(batch) for batch in feed]


def _digest(batch: infeed.Batch) -> str:
    told = hashlib.sha256()
    for name, array in batch.items():
        data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        told.update(f"{name} {array.dtype} {array.shape}".encode() + data)
    place = f"position {batch.start} of epoch {batch.epoch}, samples {batch.sample_ids.tolist()}"
    return f"{place}, mask {batch.mask.tolist()}, {told.hexdigest()[:16]}"


def _told(found: list[str], expected: list[str]) -> str:
    """The first batch that differs."""
    for one, other in itertools.zip_longest(found, expected, fillvalue="no batch"):
        if one != other:
            return f"{one}; before, {other}"
    return "none"


class ReferenceFeeds:
    """Reads all pipelines over and over, on a thread of its own, and compares."""

    def __init__(self, address: str, tell: Callable[[str], None]) -> None:
        """`tell` is told what is wrong."""
        self._address = address
        self._tell = tell
        self._expected = {name: digest(address, name) for name in NAMES}
        self.feeds = 0
        """Feeds that got all their batches."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> ReferenceFeeds:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self, name: str) -> None:
        """Reads one pipeline now."""
        try:
            found = digest(self._address, name)
        except Exception as error:  # noqa: BLE001 - whatever it is, a good feed failed
            self._tell(f"a feed of {name!r} failed: {type(error).__name__}: {error}")
            return
        if found != self._expected[name]:
            self._tell(
                f"a feed of {name!r} got other batches: {_told(found, self._expected[name])}"
            )
        self.feeds += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            for name in NAMES:
                self.check(name)
            self._stopping.wait(_PAUSE_SECONDS)
