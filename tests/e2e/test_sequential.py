"""The guarantees of datasets without random access, with real servers that are killed."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed

N = 300

FUNCTIONS = f"""
import numpy as np
import tensorflow as tf

def ordered():
    dataset = tf.data.Dataset.range({N}).shuffle(100)
    return dataset.map(lambda n: {{"n": n, "wide": tf.fill([50], n)}}, num_parallel_calls=2)

def of_unknown_length():
    return ordered().filter(lambda sample: sample["n"] % 7 != 3)

def unordered():
    def rows():
        yield from np.random.default_rng().permutation({N})
    signature = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(rows, output_signature=signature)
"""
SOURCES = {
    "ordered": "{dataset: kept_promises:ordered}",
    "of_unknown_length": "{dataset: kept_promises:of_unknown_length}",
    "unordered": "{dataset: kept_promises:unordered, fields: [n], deterministic: false}",
}


def definition(*names: str) -> str:
    """These pipelines alone: a server makes the first batch of each when it starts."""
    lines = (
        f"  {name}: {{source: {SOURCES[name]}, batch: {{size: 7, remainder: pad}}}}\n"
        for name in names
    )
    return "pipelines:\n" + "".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sequential")
    (folder / "kept_promises.py").write_text(FUNCTIONS)
    return folder


@pytest.fixture(scope="module")
def standing(command_line: Any, folder: Path) -> Iterator[list[str]]:
    """The addresses of two servers that no test ends."""
    servers = {}
    for _ in range(2):
        server = command_line.serve(definition("ordered", "unordered"), folder)
        servers[server.address] = server  # which has read the definition, about to be rewritten
    yield list(servers)
    for server in servers.values():
        server.kill()


class Ranks:
    """The ranks of one job, in step; what they were given."""

    def __init__(self, target: str, pipeline: str, world: int, **options: Any) -> None:
        self.feeds = [
            infeed.connect(
                target,
                pipeline,
                shard=infeed.Shard(rank, world),
                prefetch_bytes=1,
                **{"epochs": 2, **options},
            )
            for rank in range(world)
        ]
        self.samples: list[tuple[int, int]] = []
        """(epoch, sample), in the order of positions."""
        self.digest = hashlib.sha256()

    def take(self, steps: int | None = None) -> int:
        """So many steps, or all; how many there were."""
        taken = 0
        while taken != steps:
            batches = [next(feed, None) for feed in self.feeds]
            if batches[0] is None:
                assert not any(batches)  # all end at the same step
                break
            taken += 1
            for batch in batches:
                assert batch is not None
                self.samples += [(batch.epoch, int(n)) for n in batch["n"][batch.mask]]
                self.digest.update(np.int64([batch.start, batch.epoch]).tobytes())
                for name in sorted(batch):
                    self.digest.update(batch[name].tobytes())
        return taken

    @property
    def values(self) -> list[int]:
        return [n for _, n in self.samples]

    def close(self) -> None:
        for feed in self.feeds:
            feed.close()


class Relay:
    """A TCP relay between trainers and a server; `cut` breaks their connections."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(100)
        self.cut()
        for thread in self._threads:
            thread.join(100)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._server)
            self._ends += [near, far]
            for pair in ((near, far), (far, near)):
                self._threads.append(threading.Thread(target=self._pump, args=pair))
                self._threads[-1].start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        source.close()


@pytest.fixture
def relay() -> Iterator[Callable[[str], Relay]]:
    made: list[Relay] = []

    def start(address: str) -> Relay:
        made.append(Relay(address))
        return made[-1]

    yield start
    for one in made:
        one.close()


def undisturbed(target: str, pipeline: str, world: int) -> Ranks:
    ranks = Ranks(target, pipeline, world)
    ranks.take()
    ranks.close()
    return ranks


def test_deterministic_datasets_outlive_kills(command_line: Any, folder: Path) -> None:
    names = ("ordered", "of_unknown_length")
    server = command_line.serve(definition(*names), folder)
    address = server.address
    expected = {name: undisturbed(address, name, 3) for name in names}
    assert sorted(expected["ordered"].values) == sorted(2 * list(range(N)))
    some = [n for n in range(N) if n % 7 != 3]
    assert sorted(expected["of_unknown_length"].values) == sorted(2 * some)
    running = {name: Ranks(address, name, 3) for name in names}
    for ranks in running.values():
        guarantee = ranks.feeds[0].guarantee
        assert str(guarantee) == "deterministic order, exactly once delivery, replay resume"
    for _ in range(2):
        for ranks in running.values():
            assert ranks.take(9) == 9
        server.kill()
        server = command_line.serve(definition(*names), folder, address)
    for name, ranks in running.items():
        ranks.take()
        ranks.close()
        assert ranks.digest.digest() == expected[name].digest.digest(), name
        assert ranks.samples == expected[name].samples, name
    server.kill()


def test_a_deterministic_dataset_goes_on_at_another_server(command_line: Any, folder: Path) -> None:
    servers = {server.address: server for server in (
        command_line.serve(definition("ordered"), folder),
        command_line.serve(definition("ordered"), folder),
    )}  # fmt: skip
    expected = undisturbed(next(iter(servers)), "ordered", 2)
    ranks = Ranks(",".join(servers), "ordered", 2)
    ranks.take(10)
    used = {server for feed in ranks.feeds for server in feed.stats().servers}
    assert used == {min(servers)}  # where the ranks share one reading
    servers[min(servers)].kill()
    ranks.take()
    assert {feed.stats().servers for feed in ranks.feeds} == {tuple(sorted(servers))}
    ranks.close()
    assert ranks.digest.digest() == expected.digest.digest()
    servers[max(servers)].kill()


def test_without_an_order_nothing_is_repeated(command_line: Any, folder: Path) -> None:
    server = command_line.serve(definition("unordered"), folder)
    address = server.address
    whole = undisturbed(address, "unordered", 2)
    assert sorted(whole.values) == sorted(2 * list(range(N)))
    assert undisturbed(address, "unordered", 2).values != whole.values
    ranks = Ranks(address, "unordered", 2, epochs=1)
    guarantee = ranks.feeds[0].guarantee
    assert str(guarantee) == "none order, at most once delivery, none resume"
    ranks.take(9)
    server.kill()
    server = command_line.serve(definition("unordered"), folder, address)
    values = ranks.values
    for rank, feed in enumerate(ranks.feeds):
        # What was on its way still comes; how much that is, differs.
        with pytest.raises(infeed.CursorError, match=rf"at position \d+ for rank {rank} of 2"):
            values.extend(n for batch in feed for n in batch["n"][batch.mask].tolist())
    with pytest.raises(infeed.CursorError, match="promises no order"):
        infeed.connect(address, "unordered", state=ranks.feeds[0].state())
    ranks.close()
    assert len(values) >= 9 * 2 * 7
    assert max(Counter(values).values()) == 1
    # A new run starts from the front.
    assert sorted(undisturbed(address, "unordered", 2).values) == sorted(2 * list(range(N)))
    server.kill()


def test_without_an_order_the_ranks_meet_at_one_of_many_servers(standing: list[str]) -> None:
    ranks = [Ranks(",".join(names), "unordered", 1) for names in (standing, standing[::-1])]
    for one in ranks:
        one.take(1)
        assert one.feeds[0].stats().servers == (min(standing),)
        one.close()
    together = undisturbed(",".join(standing), "unordered", 3)
    assert sorted(together.values) == sorted(2 * list(range(N)))


@pytest.mark.parametrize("pipeline", ["ordered", "unordered"])
def test_a_broken_connection_costs_nothing(standing: list[str], relay: Any, pipeline: str) -> None:
    between = relay(standing[0])
    ranks = Ranks(between.address, pipeline, 3)
    for _ in range(5):
        assert ranks.take(4) == 4
        between.cut()
    ranks.take()
    assert all(feed.stats().reconnects >= 3 for feed in ranks.feeds)
    ranks.close()
    assert sorted(ranks.values) == sorted(2 * list(range(N)))
