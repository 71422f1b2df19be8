"""Tests of the conversion of batches to tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import infeed  # noqa: E402
from infeed.shared.spec import BYTES, DATA_TYPES  # noqa: E402
from infeed.testing import FakeTransport  # noqa: E402
from infeed.torch import FeedDataset, connect  # noqa: E402
from infeed_frameworks.torch.tensor_feed import copy_to_device, to_tensor  # noqa: E402


def first_batch(arrays: dict[str, Any], **options: Any) -> dict[str, Any]:
    transport = FakeTransport(arrays, batch_size=4, shuffle=False)
    with connect("fake", "fake", transport=transport, **options) as feed:
        return next(feed)


@pytest.mark.parametrize("data_type", [name for name in DATA_TYPES if name != BYTES])
def test_type_of_a_field_is_that_of_its_tensor(data_type: str) -> None:
    if data_type == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x = np.array([0, 1, 1, 0]).astype(infeed.shared.spec.numpy_dtype(data_type))
    tensor = first_batch({"x": x})["x"]
    assert tensor.dtype == getattr(torch, data_type)
    assert tensor.tolist() == [0, 1, 1, 0]
    tensor[0] = 1  # writable
    assert tensor.tolist() == [1, 1, 1, 0]


def test_byte_strings_are_lists_of_bytes() -> None:
    x = np.array([b"a", b"\0", b"", b"d"], object)
    assert first_batch({"x": x})["x"] == [b"a", b"\0", b"", b"d"]


def test_unknown_device_is_refused() -> None:
    with pytest.raises(infeed.InvalidRequestError, match="device 'gpu' is unknown to PyTorch"):
        first_batch({"x": np.arange(4)}, device="gpu")


def test_tensors_are_on_the_device_and_byte_strings_stay() -> None:
    arrays = {"x": np.arange(4), "name": np.array([b"a"] * 4, object)}
    batch = first_batch(arrays, device="meta", ids="id")
    assert batch["x"].device.type == batch["id"].device.type == "meta"
    assert batch["name"] == [b"a"] * 4


def pictures() -> dict[str, Any]:
    image = np.arange(4 * 2 * 3 * 5, dtype=np.uint8).reshape(4, 2, 3, 5)
    return {"image": image, "label": np.arange(4), "depth": image[..., 0]}


def test_fields_are_a_tuple_in_their_order() -> None:
    arrays, options = pictures(), {"fields": ("label", "image"), "channels_first": ["image"]}
    labels, images = first_batch(arrays, **options)
    assert labels.tolist() == [0, 1, 2, 3]
    assert images.shape == (4, 5, 2, 3)
    assert images.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(images, arrays["image"].transpose(0, 3, 1, 2))
    transport = FakeTransport(arrays, batch_size=4, shuffle=False)
    with FeedDataset("fake", "fake", transport=transport, device="cpu", **options) as dataset:
        for expected, found in zip((labels, images), next(iter(dataset)), strict=True):
            assert torch.equal(expected, found)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fields": ("image", "lable")}, "'lable' is not a field of 'fake' .did you mean 'label'"),
        ({"channels_first": "image"}, r'channels_first must be field names, such as \["image"\]'),
        ({"channels_first": ["depth"]}, r"'depth' is not a field .*depth uint8\[2, 3\]"),
        ({"channels_first": ["image"], "fields": ["label"]}, r"'image' .* fields: label int64\[\]"),
        ({"channels_first": ["images"]}, r"'images' .* fields: image uint8\[2, 3, 5\]"),
    ],
)
def test_wrong_fields_are_refused_when_connected(options: Any, problem: str) -> None:
    transport = FakeTransport(pictures(), batch_size=4)
    with pytest.raises(infeed.InvalidRequestError, match=problem):
        connect("fake", "fake", transport=transport, **options)
    with pytest.raises(infeed.InvalidRequestError, match=problem):
        FeedDataset("fake", "fake", transport=transport, **options).stats()


def test_mixed_pairs_are_those_of_numpy() -> None:
    arrays = {
        **pictures(),
        "label": np.eye(4, dtype=np.float32),
        "draws": np.tile(np.float32([64, 0.25, 0, 0, 0, 0]), (4, 1)),
    }
    transforms = [infeed.shared.spec.MixPairs("image", "label", "draws")]
    transport = FakeTransport(arrays, batch_size=4, finish_transforms=transforms)
    with (
        infeed.connect("fake", "fake", transport=transport) as feed,
        FeedDataset("fake", "fake", transport=transport, fields=("image", "label")) as dataset,
    ):
        expected, (images, labels) = next(feed), next(iter(dataset))
    np.testing.assert_array_equal(images, expected["image"])
    np.testing.assert_array_equal(labels, expected["label"])
    assert labels.max(1).values.tolist() == [0.75] * 4


class FakeTensor:
    """Records how it is copied."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def pin_memory(self) -> FakeTensor:
        self.calls.append("pin")
        return self

    def to(self, device: Any, non_blocking: bool = False) -> FakeTensor:
        self.calls.append((str(device), non_blocking))
        return self


def test_copy_to_cuda_is_from_pinned_memory_and_does_not_block() -> None:
    tensor = FakeTensor()
    copy_to_device(tensor, torch.device("cuda:1"))
    assert tensor.calls == ["pin", ("cuda:1", True)]


def test_copy_to_another_device_blocks() -> None:
    tensor = FakeTensor()
    copy_to_device(tensor, torch.device("mps"))
    assert tensor.calls == [("mps", False)]


def test_read_only_array_is_copied() -> None:
    x = np.arange(4)
    x.flags.writeable = False
    tensor = to_tensor(x)
    tensor[0] = 7
    assert x[0] == 0
