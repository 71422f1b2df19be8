"""Tests of the dataset: Grain's transformations, states, copies and what is refused."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.client.conftest import Server
from tests.client.waiting import infeed_threads, leave_out_running_threads, until
from tests.plugins.frameworks.shared.contract import (
    BATCH_SIZE,
    COUNT,
    fake,
    numpy_batches,
)

import infeed

grain = pytest.importorskip("grain")

from infeed.grain import FeedDataset, FeedIterator  # noqa: E402 - after the checks


def dataset(**options: Any) -> FeedDataset:
    transport = options.pop("transport", None) or fake()
    return FeedDataset("fake", "fake", transport=transport, **{"epochs": 1, **options})


def labels(elements: Any) -> list[int]:
    return [int(label) for element in elements for label in np.ravel(element["label"])]


@pytest.mark.parametrize("ranks", [1, 2])
def test_evaluation_has_every_sample_once(ranks: int) -> None:
    marks: dict[str, Any] = {"empty": {"label": -100}} if ranks > 1 else {}
    evaluated = [
        dataset(remainder="pad", shard=infeed.Shard(rank, ranks), **marks) for rank in range(ranks)
    ]
    given = [label for one in evaluated for label in labels(one) if label != -100]
    assert sorted(given) == list(range(COUNT))


EXPECTED = [
    int(label) for batch in numpy_batches(fake(), epochs=1) for label in batch["label"].tolist()
]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    leave_out_running_threads()
    yield
    gc.collect()
    until(lambda: not infeed_threads())


# --- elements ---


def test_elements_are_exact_dicts_that_own_their_arrays() -> None:
    jax = pytest.importorskip("jax")
    first, second = list(dataset())[:2]
    assert type(first) is dict
    assert all(type(array) is np.ndarray for array in first.values())
    assert len(jax.tree.leaves(first)) == len(first)
    kept = second["label"].copy()
    first["label"][:] = -1
    np.testing.assert_array_equal(second["label"], kept)


# --- transformations ---


def test_transformations_of_grain_take_it() -> None:
    chain = (
        dataset()
        .seed(1)
        .map(lambda element: {"label": element["label"]})
        .filter(lambda element: bool(element["label"][0] % 2))
        .map_with_index(lambda index, element: {**element, "index": index})
        .random_map(lambda element, _: element)
        .batch(2, drop_remainder=False)
    )
    found = list(chain)
    rows = np.reshape(EXPECTED, (-1, BATCH_SIZE))
    kept = rows[rows[:, 0] % 2 == 1]
    np.testing.assert_array_equal(np.concatenate([x["label"] for x in found]), kept)
    assert np.concatenate([x["index"] for x in found]).tolist() == list(range(len(kept)))


@pytest.mark.parametrize("taken", [0, 1, 4, 6])
def test_state_of_a_chain_counts_elements_that_were_taken(taken: int) -> None:
    def chain() -> Any:
        mapped = dataset().map(lambda element: {"label": element["label"]})
        return iter(grain.experimental.ThreadPrefetchIterDataset(mapped, prefetch_buffer_size=3))

    first = chain()
    seen = labels([next(first) for _ in range(taken)])
    state = json.loads(json.dumps(first.get_state()))
    first.close()
    rest = chain()
    rest.set_state(state)
    assert seen + labels(rest) == EXPECTED


# --- states ---


# --- iterators ---


def test_dataset_and_iterator_connect_lazily() -> None:
    transport = fake()
    iterator = iter(
        grain.experimental.ThreadPrefetchIterDataset(
            dataset(transport=transport).map(dict), prefetch_buffer_size=2
        )
    )
    iterator.set_state(iterator.get_state())
    assert transport.streams == 0
    iterator.start_prefetch()
    iterator.start_prefetch()
    until(lambda: transport.streams == 1)
    assert labels(iterator) == EXPECTED


def test_given_feed_is_iterated_once() -> None:
    with infeed.connect("fake", "fake", epochs=1, transport=fake()) as feed:
        given = FeedDataset(feed)
        iterator: FeedIterator = iter(given)
        assert iterator.feed is feed
        assert labels(iterator) == EXPECTED
        with pytest.raises(infeed.InvalidRequestError, match="iterated once; pass target"):
            iter(given)
        with pytest.raises(infeed.InvalidRequestError, match="cannot be replaced"):
            iterator.set_state(feed.state())
        with pytest.raises(infeed.InvalidRequestError, match="cannot be copied"):
            pickle.dumps(given)


def test_iterator_that_is_dropped_ends_its_threads() -> None:
    next(iter(dataset(epochs=None).map(dict)))
    gc.collect()
    until(lambda: not infeed_threads())


def test_copy_of_a_dataset_connects_itself() -> None:
    assert labels(copy.copy(dataset())) == EXPECTED
    options = {"batch_size": 2, "shard": infeed.Shard(1, 2)}
    original = FeedDataset("host:1", "photos", ids="_id", **options)
    assert vars(pickle.loads(pickle.dumps(original))) == {**vars(original), "_is_copy": True}


# --- worker processes ---


def test_worker_processes_are_refused() -> None:
    with pytest.raises(infeed.InvalidRequestError, match="Leave out mp_prefetch"):
        dataset().mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=2))


WORKERS = """
import sys
import grain
import infeed
from absl import flags
from infeed.grain import FeedDataset

if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=int(sys.argv[2]))
    shard = infeed.Shard() if sys.argv[3:] else None
    chain = FeedDataset(sys.argv[1], "fake", epochs=1, shard=shard).map(dict).mp_prefetch(options)
    try:
        print([label for batch in chain for label in batch["label"].tolist()])
    except Exception as error:
        print(type(error).__name__, error)
"""


def read_in_workers(tmp_path: Any, *arguments: str) -> str:
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    server = Server(fake())
    command = [sys.executable, str(script), server.address, *arguments]
    try:
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    finally:
        server.stop()
    return result.stdout or result.stderr


@pytest.mark.parametrize("arguments", ["1", "2", "2 shard"])
def test_worker_processes_of_a_chain_are_refused(tmp_path: Any, arguments: str) -> None:
    output = read_in_workers(tmp_path, *arguments.split())
    assert "InvalidRequestError" in output
    assert "Leave out mp_prefetch" in output


def test_one_worker_of_a_chain_with_a_shard_reads_every_batch(tmp_path: Any) -> None:
    assert read_in_workers(tmp_path, "1", "shard") == f"{EXPECTED}\n"


# --- package ---

ALONE = """
import sys
for name in ("tensorflow", "jax", "orbax", "torch"):
    sys.modules[name] = None
import asyncio, tempfile
from infeed.grain import Checkpointable, FeedDataset, read_state
from infeed.testing import FakeTransport
import numpy as np
transport = FakeTransport({"x": np.arange(64)})
iterator = iter(FeedDataset("fake", "fake", transport=transport))
next(iterator)
class Folder:
    async def await_creation(self):
        return folder
async def save():
    await (await Checkpointable(iterator).save(Folder()))
with tempfile.TemporaryDirectory() as folder:
    asyncio.run(save())
    print(read_state(folder)["position"])
"""

AT_EXIT = """
from infeed.grain import FeedDataset
from infeed.testing import FakeTransport
import numpy as np
transport = FakeTransport({"x": np.arange(64)})
iterator = iter(FeedDataset("fake", "fake", transport=transport).map(dict))
next(iterator)
print("end")
"""

LEFT_IN_A_MODULE = (
    AT_EXIT
    + """
import threading
threading.kept = iterator  # deleted after the modules of infeed
"""
)

WITHOUT_ORBAX = """
import sys
sys.modules["orbax"] = None
import infeed
try:
    infeed.grain.CheckpointSave
except infeed.MissingExtraError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("script", "output"),
    [
        (AT_EXIT, "end\n"),
        (LEFT_IN_A_MODULE, "end\n"),
        (WITHOUT_ORBAX, "the handlers of infeed.grain need Orbax: pip install orbax-checkpoint\n"),
    ],
    ids=["iterator left at exit", "left in a module", "without Orbax"],
)
def test_process_ends_without_other_output(script: str, output: str) -> None:
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert (result.stdout, result.stderr, result.returncode) == (output, "", 0)


def test_grain_alone_is_enough() -> None:
    command = [sys.executable, "-c", ALONE]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200)
    assert result.stdout == "8\n"  # Grain itself warns that it cannot import JAX


# --- shard ---


def run(code: str, **environment: str) -> str:
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, env=env, capture_output=True, text=True).stdout


UNKNOWN_TO_JAX = """
import numpy as np
import infeed
from infeed.testing import FakeTransport
from jax._src import xla_bridge

fake = FakeTransport({"x": np.arange(8)}, batch_size=2)
iterator = iter(infeed.grain.FeedDataset("fake", "fake", transport=fake))
try:
    next(iterator)
except infeed.InvalidRequestError as error:
    print(error)
shard = infeed.Shard()
print(len(next(iter(infeed.grain.FeedDataset("fake", "fake", transport=fake, shard=shard)))))
assert not xla_bridge._backends, "a backend was initialised"
"""


def test_several_processes_that_jax_does_not_know_are_refused() -> None:
    printed = run(UNKNOWN_TO_JAX, RANK="0", WORLD_SIZE="2")
    assert "(WORLD_SIZE=2), and jax.distributed is not initialized" in printed
    assert "give shard=infeed.Shard(rank, world_size)" in printed
    assert printed.endswith("\n1\n")


INITIALIZED_LATER = """
import jax
import numpy as np
import infeed
from infeed.testing import FakeTransport

fake = FakeTransport({"x": np.arange(8)}, batch_size=2)
iterator = iter(infeed.grain.FeedDataset("fake", "fake", transport=fake))
next(iterator)
jax.distributed.is_initialized = lambda: True
jax.process_index, jax.process_count = lambda: 1, lambda: 2
try:
    next(iterator)
except infeed.InvalidRequestError as error:
    print(error)
iterator.set_state(iterator.get_state())
next(iterator)
print(iterator.feed.shard)
"""


def test_processes_that_jax_learns_of_too_late_are_refused() -> None:
    printed = run(INITIALIZED_LATER)
    assert "before jax.distributed was initialized" in printed
    assert "give FeedDataset shard=" in printed
    assert printed.endswith("Shard(rank=1, world_size=2)\n")
