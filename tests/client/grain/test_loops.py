"""Loops as MaxText and Grain's tutorial have them, with a feed as their iterator.

Each is written from its documentation, as far as it touches the input; none knows infeed.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.adapters.contract import COUNT, fake, numpy_batches

grain = pytest.importorskip("grain")
jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")

import jax.numpy as jnp  # noqa: E402 - after the checks
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from infeed.grain import FeedDataset  # noqa: E402

with contextlib.suppress(RuntimeError):  # another test has used JAX already
    jax.config.update("jax_num_cpu_devices", 4)

pytestmark = pytest.mark.filterwarnings("default")
"""Orbax warns of its own deprecations."""

BATCH = 8
"""A multiple of the number of devices."""


def dataset(**options: Any) -> FeedDataset:
    options = {"epochs": 1, "batch_size": BATCH, "transport": fake(), "ids": "_id", **options}
    return FeedDataset("fake", "fake", **options)


def expected_labels(**options: Any) -> list[int]:
    batches = numpy_batches(fake(), batch_size=BATCH, **{"epochs": 1, **options})
    return [int(label) for batch in batches for label in batch["label"]]


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("data",))


# --- MaxText: a loader of several hosts ---


class MultihostLoader:
    """Makes global arrays of each host's batches: one piece of axis 0 for each local device."""

    def __init__(self, dataloader: Iterable[Any], mesh: Mesh, *, pad: bool = False) -> None:
        if not isinstance(dataloader, collections.abc.Iterable):
            raise TypeError("the loader needs an iterable")
        self.dataloader = dataloader
        self.mesh = mesh
        self.local_iterator = iter(dataloader)
        self.generate_padding_batch = pad
        self.local_shapes: Any = None
        self.out_of_data = False

    def reset(self) -> None:
        self.local_iterator = iter(self.dataloader)

    def __iter__(self) -> MultihostLoader:
        self.reset()
        return self

    def __next__(self) -> Any:
        return jax.tree_util.tree_map_with_path(self._form_global_array, self._local_batch())

    def _local_batch(self) -> Any:
        if not self.out_of_data:
            try:
                batch = next(self.local_iterator)
                self.local_shapes = jax.tree.map(lambda x: (x.shape, x.dtype), batch)
                return batch
            except StopIteration:
                if not self.generate_padding_batch:
                    raise
                self.out_of_data = True
        is_leaf = lambda x: isinstance(x, tuple)  # noqa: E731
        return jax.tree.map(lambda x: np.zeros(*x), self.local_shapes, is_leaf=is_leaf)

    def _form_global_array(self, path: Any, array: Any) -> Any:
        shape = (jax.process_count() * array.shape[0], *array.shape[1:])
        devices = self.mesh.local_devices
        try:
            pieces = np.split(array, len(devices), axis=0)
        except ValueError as error:
            raise ValueError(f"cannot split {path} of {array.shape}") from error
        buffers = [jax.device_put(*pair) for pair in zip(pieces, devices, strict=True)]
        sharding = NamedSharding(self.mesh, PartitionSpec(self.mesh.axis_names))
        return jax.make_array_from_single_device_arrays(shape, sharding, buffers)


def labels_of(loader: Iterator[Any]) -> list[int]:
    found = []
    for batch in loader:
        assert all(isinstance(x, jax.Array) for x in batch.values())
        found += np.asarray(batch["label"]).tolist()
    return found


def test_maxtext_loader_reads_it_again_after_a_reset() -> None:
    loader = MultihostLoader(dataset(), mesh())
    next(loader)  # the loader resets itself in the `for` loop
    assert labels_of(iter(loader)) == expected_labels()
    assert labels_of(iter(loader)) == expected_labels()


def test_maxtext_loader_pads_at_the_end() -> None:
    loader = MultihostLoader(dataset(), mesh(), pad=True)
    batches = [next(loader) for _ in range(COUNT // BATCH + 2)]
    assert labels_of(batches[:-2]) == expected_labels()
    assert all(not np.asarray(x["image"]).any() for x in batches[-2:])


def test_maxtext_checkpoint_continues_the_loader(tmp_path: Path) -> None:
    def save(manager: Any, step: int, loader: MultihostLoader, params: Any) -> None:
        items = {
            "items": ocp.args.PyTreeSave(params),
            "iter": grain.checkpoint.CheckpointSave(item=loader.local_iterator),
        }
        manager.save(step, args=ocp.args.Composite(**items))

    loader = MultihostLoader(dataset(), mesh())
    with ocp.CheckpointManager(tmp_path) as manager:
        next(loader)
        save(manager, 1, loader, {"w": jnp.ones(3)})
        rest = labels_of(next(loader) for _ in range(COUNT // BATCH - 1))
        manager.wait_until_finished()
        resumed = MultihostLoader(dataset(), mesh())
        items = {"iter": grain.checkpoint.CheckpointRestore(item=resumed.local_iterator)}
        restored = manager.restore(1, args=ocp.args.Composite(**items))
        assert restored["iter"] is resumed.local_iterator
    assert rest == labels_of(next(resumed) for _ in range(COUNT // BATCH - 1))


# --- Grain's tutorial: transformations, a loop by number of steps, Orbax ---


class ToFloat(grain.transforms.Map):
    def map(self, element: Any) -> Any:
        return {"x": element["image"].mean(axis=(1, 2, 3)), "y": element["label"]}


def test_grain_tutorial_resumes_to_the_same_weights(tmp_path: Path) -> None:
    def pipeline() -> Any:
        return dataset(epochs=None).apply([ToFloat()]).map(lambda e: {**e, "x": e["x"] - 0.5})

    @jax.jit
    def train_step(w: Any, batch: Any) -> Any:
        return w - 0.001 * jax.grad(lambda w: ((batch["x"] * w - batch["y"]) ** 2).mean())(w)

    def train(w: Any, iterator: Any, steps: range, manager: Any = None) -> Any:
        for step in steps:
            w = train_step(w, next(iterator))
            if manager is not None and step == 4:
                args = {
                    "w": ocp.args.ArraySave(w),
                    "data": grain.checkpoint.CheckpointSave(iterator),
                }
                manager.save(step, args=ocp.args.Composite(**args))
        return w

    whole = train(jnp.zeros(()), iter(pipeline()), range(10))
    with ocp.CheckpointManager(tmp_path) as manager:
        train(jnp.zeros(()), iter(pipeline()), range(7), manager)
    iterator = iter(pipeline())
    with ocp.CheckpointManager(tmp_path) as manager:
        args = {"w": ocp.args.ArrayRestore(), "data": grain.checkpoint.CheckpointRestore(iterator)}
        restored = manager.restore(manager.latest_step(), args=ocp.args.Composite(**args))
    resumed = train(jnp.asarray(restored["w"]), iterator, range(5, 10))
    assert np.asarray(resumed).tobytes() == np.asarray(whole).tobytes()
