"""Tests of the ranks that follow from the data groups of a sharding."""

from __future__ import annotations

import numpy as np
import pytest

import infeed

jax = pytest.importorskip("jax")

from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding  # noqa: E402

from infeed_frameworks.jax.data_groups import data_groups, shard_of, trimmed  # noqa: E402


@pytest.mark.parametrize(
    ("held", "ranks"),
    [
        ({0: {0}, 1: {1}}, [(0, 2), (1, 2)]),
        ({0: {0, 1}, 1: {2, 3}}, [(0, 2), (1, 2)]),
        ({0: {2, 3}, 1: {0, 1}}, [(1, 2), (0, 2)]),  # a mesh in another order of the processes
        ({0: {0}, 1: {0}, 2: {1}, 3: {1}}, [(0, 2), (0, 2), (1, 2), (1, 2)]),  # replicas
        ({0: {0, 1}, 1: {0, 1}}, [(0, 1), (0, 1)]),  # all processes are replicas
        ({0: {0, 2}, 1: {1, 3}}, [(0, 2), (1, 2)]),  # a pod's hosts, in a mesh by rows of chips
    ],
)
def test_rank_is_that_of_the_groups(held: dict[int, set[int]], ranks: list[object]) -> None:
    shards = [shard_of(process, held) for process in held]
    assert [(shard.rank, shard.world_size) for shard in shards] == ranks


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({0: {0, 1, 2}, 1: {3}}, "process 0 holds 0, 1, 2; process 1 holds 3;"),
        ({0: {0, 1}, 1: {1, 2}}, "process 0 holds 0, 1; process 1 holds 1, 2;"),
        ({0: {0, 1}, 1: {1}}, "the same number of data groups"),
    ],
)
@pytest.mark.parametrize("process", [0, 1])
def test_uneven_groups_are_refused_on_every_process(
    held: dict[int, set[int]], message: str, process: int
) -> None:
    with pytest.raises(infeed.InvalidRequestError, match=message):
        shard_of(process, held)


def test_process_without_a_device_is_refused() -> None:
    with pytest.raises(
        infeed.InvalidRequestError, match=r"process 2 has no .* spans processes 0, 1;"
    ):
        shard_of(2, {0: {0}, 1: {1}})


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (("data",), 4),
        (("model",), 2),
        ((("data", "model"),), 8),
        ((None, "model"), 1),
        ((), 1),
        (("data", None, "model"), 4),
    ],
)
def test_groups_are_counted_on_axis_0(spec: tuple[object, ...], count: int) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    groups = data_groups(NamedSharding(mesh, PartitionSpec(*spec)))
    assert groups.count == count
    assert groups.shard == infeed.Shard(0, 1)


def test_single_device_is_one_group() -> None:
    assert data_groups(SingleDeviceSharding(jax.devices()[3])).count == 1


def test_spec_is_cut_to_the_dimensions() -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    sharding = NamedSharding(mesh, PartitionSpec("data", None, "model"))
    assert trimmed(sharding, 1) == NamedSharding(mesh, PartitionSpec("data"))
    assert trimmed(sharding, 3) is sharding
    assert trimmed(sharding.with_memory_kind("pinned_host"), 1).memory_kind == "pinned_host"
