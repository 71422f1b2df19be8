"""Reference feeds: valid trainers during the fuzzing, whose batches must not change."""

from __future__ import annotations

import hashlib
import itertools
import threading
from typing import Any

from tests.stress.fuzz.server_under_test import NAMES

import infeed

_EPOCHS = 2
_PAUSE_SECONDS = 1.0


def batch_digests(address: str, name: str) -> list[str]:
    """Returns a digest of every batch of two epochs."""
    options: dict[str, Any] = {"epochs": _EPOCHS, "remainder": "pad", "prefetch_bytes": 1 << 20}
    with infeed.connect(address, name, **options) as feed:
        return [_digest(batch) for batch in feed]


def _digest(batch: infeed.Batch) -> str:
    digest = hashlib.sha256()
    for name, array in batch.items():
        data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + data)
    position = f"position {batch.start} of epoch {batch.epoch}, samples {batch.sample_ids.tolist()}"
    return f"{position}, mask {batch.mask.tolist()}, {digest.hexdigest()[:16]}"


class ReferenceFeeds:
    """Reads all pipelines repeatedly on a thread, and compares their batches."""

    def __init__(self, address: str) -> None:
        """Reads the expected batches."""
        self._address = address
        self.problems: list[str] = []
        self._expected = {name: batch_digests(address, name) for name in NAMES}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reference-feeds", daemon=True)

    def __enter__(self) -> ReferenceFeeds:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self, name: str) -> None:
        """Reads one pipeline and compares its batches."""
        try:
            received = batch_digests(self._address, name)
        except Exception as error:  # noqa: BLE001 - any error of a valid feed is a problem
            self.problems.append(f"a feed of {name!r} failed: {type(error).__name__}: {error}")
            return
        if received != self._expected[name]:
            pairs = itertools.zip_longest(received, self._expected[name], fillvalue="no batch")
            one, other = next((one, other) for one, other in pairs if one != other)
            self.problems.append(f"a feed of {name!r} got other batches: {one}; before, {other}")

    def _run(self) -> None:
        while not self._stopping.is_set():
            for name in NAMES:
                self.check(name)
            self._stopping.wait(_PAUSE_SECONDS)
