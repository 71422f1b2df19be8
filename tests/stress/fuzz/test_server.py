"""Hostile calls to a live server: valid statuses, and the same batches to feeds meanwhile."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples
from tests.harness.server import InfeedServer
from tests.harness.waiting import wait_until
from tests.stress.fuzz.calls import CONCURRENT_CALLS, problems
from tests.stress.fuzz.kinds import KINDS

import infeed
from infeed.rpc.channel import GrpcTransport

NAMES = ("numbers", "photos", "files", "rows")

MAX_EXTRA = {"megabytes": 64, "threads": 64, "files": 4}
"""Growth of a server that returns to its initial resources: threads of batch sizes that are kept
warm and that the warm-up may not have used."""


def batch_digests(address: str, name: str) -> list[str]:
    """Returns position, samples and a digest of every batch of two epochs."""
    found = []
    with infeed.connect(address, name, epochs=2, remainder="pad", prefetch_bytes=1 << 20) as feed:
        for batch in feed:
            digest = hashlib.sha256()
            for field, array in batch.items():
                is_object = array.dtype == object
                data = repr(array.tolist()).encode() if is_object else array.tobytes()
                digest.update(f"{field} {array.dtype} {array.shape}".encode() + data)
            place = f"{batch.start} {batch.epoch} {batch.sample_ids.tolist()} {batch.mask.tolist()}"
            found.append(f"{place} {digest.hexdigest()[:16]}")
    return found


@contextmanager
def reference_feeds(address: str) -> Iterator[None]:
    """Reads all pipelines repeatedly on a thread; fails at the end if a feed failed, or got other
    batches than before."""
    expected = {name: batch_digests(address, name) for name in NAMES}
    stopping, found = threading.Event(), list[object]()

    def read() -> None:
        try:
            for name in itertools.cycle(NAMES):
                if batch_digests(address, name) != expected[name]:
                    found.append(f"a feed of {name} got other batches")
                if stopping.wait(0.25):
                    return
        except Exception as error:  # noqa: BLE001 - any error of a valid feed is a problem
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    yield
    stopping.set()
    thread.join()
    assert found == []


def errors_in_log(server: InfeedServer) -> list[str]:
    """Returns the log's errors, which no peer may cause."""
    lines = server.log.splitlines()
    return [line for line in lines if re.search(r"Traceback|ERROR|CRITICAL", line)]


def resources(server: InfeedServer) -> dict[str, float]:
    proc = Path(f"/proc/{server.pid}")
    lines = (proc / "status").read_text().splitlines()
    fields = dict(line.split()[:2] for line in lines if len(line.split()) > 1)
    # Without file pages, such as libraries, which the kernel can evict.
    megabytes = int(fields["RssAnon:"]) * 1024 / 1e6
    files = len(list((proc / "fd").iterdir()))
    return {"megabytes": megabytes, "threads": int(fields["Threads:"]), "files": files}


def run_calls(server: InfeedServer) -> None:
    """Runs `CONCURRENT_CALLS` at a time, and reads reference feeds meanwhile."""
    transport = GrpcTransport(server.address)
    specs = {spec.name: spec for spec in transport.list_pipelines()}
    transport.close()

    @examples(80)
    @given(rng=st.randoms(use_true_random=True))
    def run(rng: random.Random) -> None:
        kinds = rng.choices([*KINDS], [*KINDS.values()], k=CONCURRENT_CALLS)
        assert problems(server.address, [draw(rng, specs) for draw in kinds]) == []
        assert errors_in_log(server) == []

    with reference_feeds(server.address):
        run()


@pytest.mark.timeout(3600)
def test_hostile_calls_have_no_violation(server: InfeedServer) -> None:
    run_calls(server)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_hostile_calls_leave_no_resources(server: InfeedServer) -> None:
    run_calls(server)  # the pools of the allocator grow at first
    before = resources(server)
    run_calls(server)
    wait_until(
        lambda: all(resources(server)[name] <= before[name] + MAX_EXTRA[name] for name in before),
        lambda: f"{resources(server)} returns to {before}",
    )
