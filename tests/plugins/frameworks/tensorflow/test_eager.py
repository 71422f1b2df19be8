"""Tensors of a feed in a loop of one's own, and the cursor in `tf.train.Checkpoint`."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plugins.frameworks.shared.contract import AdapterContract

import infeed
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed.testing import FakeTransport

tf = pytest.importorskip("tensorflow")

from infeed_frameworks.tensorflow.eager import to_tensor  # noqa: E402 - it needs TensorFlow

LARGE = 1 << 18
"""Bytes of a field of a batch: more than what a feed's pool leaves to NumPy's allocator."""


def connect(fake: FakeTransport, **options: Any) -> Any:
    return infeed.tensorflow.connect("fake", "fake", transport=fake, **options)


class TestContract(AdapterContract):
    def open(self, transport: Any, **options: Any) -> Any:
        if isinstance(transport, str):
            return infeed.tensorflow.connect(transport, "fake", **options)
        return connect(transport, **options)


# --- memory ---


class _Exported:
    """A tensor as NumPy takes it."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return tf.experimental.dlpack.to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def address(tensor: Any) -> int:
    return int(np.from_dlpack(_Exported(tensor)).ctypes.data)


def aligned(count: int, dtype: Any) -> Any:
    raw = np.zeros(count * np.dtype(dtype).itemsize + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : len(raw) - 64 + offset].view(dtype)


def test_a_batch_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    original = infeed.Feed.next
    monkeypatch.setattr(infeed.Feed, "next", lambda feed: taken.append(original(feed)) or taken[-1])
    fake = FakeTransport({"image": np.ones((8, LARGE), np.uint8)}, batch_size=2)
    with connect(fake) as feed:
        tensor = next(feed)["image"]
        assert address(tensor) == taken[0]["image"].ctypes.data


def test_memory_is_used_again_only_after_its_tensors_are_gone() -> None:
    def used() -> Any:
        batch = next(feed)
        return batch, address(batch["image"])

    rows = np.arange(16, dtype=np.uint8)
    images = np.broadcast_to(rows[:, None], (16, LARGE)).copy()
    fake = FakeTransport({"image": images, "label": rows}, batch_size=2)
    with connect(fake, prefetch_bytes=1) as feed:
        kept = [used() for _ in range(20)]
        views = [tf.reshape(batch["image"], [-1])[: LARGE // 2] for batch, _ in kept]
        assert len({place for _, place in kept}) == 20
        for batch, _ in kept:
            expected = np.broadcast_to(batch["label"].numpy()[:, None], (2, LARGE))
            np.testing.assert_array_equal(batch["image"], expected)
        labels = [batch["label"].numpy()[0] for batch, _ in kept]
        del kept, batch
        gc.collect()
        later = [used()[1] for _ in range(40)]  # each is dropped at once
        assert len(set(later)) < 20
        for view, label in zip(views, labels, strict=True):
            assert set(view.numpy().tolist()) == {label}


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(aligned(6, np.float32), id="aligned"),
        pytest.param(aligned(6, bool), id="bool"),
        pytest.param(aligned(13, np.uint8)[1:], id="not-aligned"),
        pytest.param(aligned(12, np.float32)[::2], id="not-contiguous"),
        pytest.param(np.broadcast_to(np.float32(1), (4,)), id="read-only"),
        pytest.param(aligned(0, np.int32), id="empty"),
        pytest.param(np.array([b"a", b"\xff\x00", b""], np.object_), id="bytes"),
        pytest.param(aligned(6, tf.bfloat16.as_numpy_dtype), id="bfloat16"),
    ],
)
def test_every_array_becomes_a_tensor(array: Any) -> None:
    tensor = to_tensor(array)
    assert tensor.shape == array.shape
    assert tensor.dtype == (tf.string if array.dtype == object else tf.as_dtype(array.dtype))
    # TensorFlow aborts the process if an operation gets a tensor that is not aligned.
    assert tf.concat([tensor, tensor], 0).numpy().tolist() == [*array.tolist(), *array.tolist()]
    if tensor.dtype.is_floating:
        tf.debugging.assert_equal(tensor + tensor, 2 * tensor)


# --- checkpoints ---


def manage(feed: Any, folder: Path) -> tuple[Any, Any]:
    checkpoint = tf.train.Checkpoint(step=tf.Variable(0), feed=feed)
    return checkpoint, tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)


def labels(feed: Any, count: int) -> list[list[int]]:
    return [next(feed)["label"].numpy().tolist() for _ in range(count)]


def test_a_checkpoint_manager_restores_the_cursor(fake: FakeTransport, tmp_path: Path) -> None:
    with connect(fake) as feed:
        whole = labels(feed, 9)
    for begin in (0, 3, 6):
        with connect(fake) as feed:
            checkpoint, manager = manage(feed, tmp_path)
            status = checkpoint.restore(manager.latest_checkpoint)
            if begin:
                status.assert_consumed()
            assert int(checkpoint.step) == begin
            assert labels(feed, 3) == whole[begin : begin + 3]
            checkpoint.step.assign_add(3)
            manager.save()
            next(feed)  # after the save


def test_a_feed_that_was_given_cannot_be_restored(fake: FakeTransport, tmp_path: Path) -> None:
    with infeed.connect("fake", "fake", transport=fake) as feed:
        checkpoint, manager = manage(infeed.tensorflow.connect(feed), tmp_path)
        path = manager.save()
        with pytest.raises(InvalidRequestError, match="pass target and pipeline"):
            checkpoint.restore(path)


def test_a_checkpoint_without_a_cursor_is_refused(fake: FakeTransport) -> None:
    with connect(fake) as feed, pytest.raises(CursorError, match="no cursor of a feed"):
        feed.deserialize("{")


def test_a_cursor_is_saved_again_without_a_connection(fake: FakeTransport, tmp_path: Path) -> None:
    with connect(fake) as feed:
        next(feed)
        state = feed.state()
        path = manage(feed, tmp_path)[1].save()
        streams = fake.streams
    with connect(fake) as feed:
        checkpoint, manager = manage(feed, tmp_path)
        checkpoint.restore(path)
        assert feed.state() == state
    manager.save()  # also after the end
    assert fake.streams == streams
