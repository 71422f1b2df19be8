"""Tests of global batches on meshes of eight virtual devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.shared.spec import Normalize, OneHot
from infeed.testing import FakeTransport

jax = pytest.importorskip("jax")

from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

COUNT = 40


def fake(**options: Any) -> FakeTransport:
    random = np.random.default_rng(0)
    arrays = {
        "image": random.integers(0, 256, (COUNT, 6, 4, 2), np.uint8),
        "label": np.arange(COUNT, dtype=np.int32) % 8,
        "name": np.array([b"n%d" % n for n in range(COUNT)], object),
    }
    finish = [Normalize("image", scale=255.0, mean=(0.4, 0.5), std=(0.2,)), OneHot("label", 8)]
    return FakeTransport(arrays, seed=5, finish_transforms=finish, **options)


@pytest.fixture
def mesh() -> Any:
    assert jax.device_count() == 8, "JAX was initialised before conftest.py of this folder"
    return Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))


@pytest.fixture
def connect() -> Iterator[Callable[..., infeed.jax.DeviceFeed]]:
    opened = []

    def open_and_keep(transport: Any = None, **options: Any) -> infeed.jax.DeviceFeed:
        transport = transport or fake()
        opened.append(infeed.jax.connect("fake", "fake", transport=transport, **options))
        return opened[-1]

    yield open_and_keep
    for batches in opened:
        batches.close()


@pytest.mark.parametrize(
    "spec",
    [
        P("data"),
        P(("data", "model")),
        P("data", None, None, "model"),  # channels are on several devices too
        P("data", "model"),  # 6 rows of pixels; the classes of the label
        P(None, "model"),
        P(),
    ],
)
def test_global_batch_is_that_of_one_trainer(
    mesh: Any, connect: Callable[..., Any], spec: Any
) -> None:
    batches = connect(
        sharding=NamedSharding(mesh, spec), global_batch_size=8, epochs=1, ids="id", mask="mask"
    )
    with infeed.connect("fake", "fake", batch_size=8, epochs=1, transport=fake()) as feed:
        for batch, expected in zip(batches, feed, strict=True):
            assert type(batch) is dict
            assert list(batch) == ["image", "label", "name", "id", "mask"]
            for name in ("image", "label"):
                assert isinstance(batch[name], jax.Array)
                np.testing.assert_array_equal(batch[name], expected[name], strict=True)
                x = batch[name]
                wanted = NamedSharding(mesh, P(*spec[: x.ndim]))
                assert x.sharding.is_equivalent_to(wanted, x.ndim)
            np.testing.assert_array_equal(batch["id"], expected.sample_ids)
            np.testing.assert_array_equal(batch["mask"], expected.mask, strict=True)
            assert type(batch["name"]) is np.ndarray
            np.testing.assert_array_equal(batch["name"], expected["name"])


def test_every_replica_has_the_rows_of_its_group(mesh: Any, connect: Callable[..., Any]) -> None:
    batches = connect(sharding=(mesh, P("data")), global_batch_size=8, ids="id")
    ids = next(batches)["id"]
    whole = np.asarray(ids)
    for row, replicas in enumerate(mesh.devices):
        for device in replicas:
            (shard,) = [x for x in ids.addressable_shards if x.device == device]
            np.testing.assert_array_equal(shard.data, whole[2 * row : 2 * row + 2])


def test_uint8_crosses_to_the_devices(
    mesh: Any, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    crossed: dict[str, int] = {}
    make = jax.make_array_from_process_local_data

    def record(sharding: Any, x: Any, shape: Any) -> Any:
        crossed[x.dtype.name] = crossed.get(x.dtype.name, 0) + x.nbytes
        return make(sharding, x, shape)

    monkeypatch.setattr(jax, "make_array_from_process_local_data", record)
    image = next(connect(sharding=(mesh, P("data")), global_batch_size=8, device_prefetch=0))[
        "image"
    ]
    assert image.dtype == np.float32
    assert crossed["uint8"] / image.nbytes == 0.25
    assert crossed["int32"] == 8 * 4  # the labels; one-hot is made on the devices


def test_batch_size_is_of_the_pipeline(mesh: Any, connect: Callable[..., Any]) -> None:
    assert next(connect(fake(batch_size=12), sharding=(mesh, P("data"))))["image"].shape[0] == 12


def test_ranks_with_a_sharding_each_share_the_global_batch(
    mesh: Any, connect: Callable[..., Any]
) -> None:
    ids = []
    for rank in range(2):
        sharding, shard = (mesh, P("data")), infeed.Shard(rank, 2)
        batches = connect(sharding=sharding, global_batch_size=8, shard=shard, ids="id")
        ids.append(np.asarray(next(batches)["id"]))
    np.testing.assert_array_equal(np.concatenate(ids), fake().sample_ids(5, 0, 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"global_batch_size": 10}, "10 is not a multiple of 4, .* 4 data groups .*multiple is 12"),
        ({"batch_size": 6}, "a batch of 6 slots, 6 for each of 1 ranks, .* into the 4 data groups"),
        ({"global_batch_size": 0}, "global_batch_size must be from 1"),
        ({"global_batch_size": 8, "batch_size": 8}, "8 conflict: one counts"),
        ({"ids": "label"}, "ids='label' is already a field"),
        ({"ids": "x", "mask": "x"}, "ids and mask must differ"),
        ({"device_prefetch": -1}, "device_prefetch must be from 0"),
        ({"prefetch": 1}, "prefetch must be from 2 to 64"),
        ({"finish": "device"}, 'finish must be "trainer" or "server" or "none"'),
    ],
)
def test_invalid_options_are_refused(
    mesh: Any, connect: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(infeed.InvalidRequestError, match=message):
        next(connect(sharding=(mesh, P("data")), **options))


def test_given_feed_of_another_batch_size_is_refused(mesh: Any) -> None:
    feed = infeed.connect("fake", "fake", batch_size=8, transport=fake())
    with (
        infeed.jax.connect(feed, sharding=(mesh, P("data")), global_batch_size=16) as batches,
        pytest.raises(infeed.InvalidRequestError, match="is 16, but the feed has batches of 8"),
    ):
        next(batches)


def test_finish_transforms_are_compiled_once(mesh: Any, connect: Callable[..., Any]) -> None:
    batches = connect(
        sharding=(mesh, P("data")), global_batch_size=16, epochs=1, remainder="pad", mask="mask"
    )
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    )
    jax.clear_caches()
    next(batches)
    assert compiled
    compiled.clear()
    assert len(list(batches)) == 2  # the last one with empty slots
    assert not compiled
