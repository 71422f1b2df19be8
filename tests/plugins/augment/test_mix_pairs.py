"""Mixup and cutmix: timm's distribution; the same bits in each framework, after a resume, on a
second server, and for any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

import infeed
from infeed.shared.errors import ConfigError, InvalidRequestError
from infeed.shared.finish import finish
from infeed.shared.spec import MixPairs as Mix
from infeed.shared.tensorflow.finish import finish as tensorflow_finish
from infeed_augment.mix_pairs import MixPairs

SIZE = (16, 12)
COUNT, CLASSES = 24, 4


def pixels() -> Any:
    return np.random.default_rng(1).integers(0, 256, (COUNT, *SIZE, 3), np.uint8)


def labels() -> Any:
    return np.arange(COUNT) % CLASSES


def definition(folder: Path, mix: str, size: int = 4) -> str:
    np.savez(folder / "n.npz", image=pixels(), label=labels())
    return f"""
pipelines:
  n:
    source: {{arrays: {folder}/n.npz}}
    shuffle: {{seed: 3}}
    transforms:
      - rand_augment: {{field: image}}
      - one_hot: {{field: label, depth: {CLASSES}, on_value: 0.9, off_value: 0.025}}
      - random_erasing: {{field: image, value: null, at: trainer}}
      - mix_pairs: {{field: image, {mix}}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: {size}}}
"""


def draws(transform: MixPairs, count: int) -> Any:
    """Returns own share of pixels and label, and the rectangle, of many samples."""
    keys = tf.constant([[number, 5] for number in range(count)], tf.int64)
    sample = {"image": tf.zeros([*SIZE, 3], tf.uint8), "label": tf.zeros([2])}
    return tf.map_fn(
        lambda key: transform.apply(sample, key)["image.mix_pairs-0"], keys, tf.float32
    ).numpy()


def twin(image: Any, label: Any, drawn: Any) -> tuple[Any, Any]:
    """Returns what timm's Mixup makes of pixels and labels, in float64, by the draws."""
    image, label = image.astype(float), label.astype(float)
    mixed, targets = image.copy(), label.copy()
    for slot in range(len(image)):
        share, of_label, top, left, bottom, right = drawn[slot - slot % 2].astype(float)
        other = slot ^ 1
        mixed[slot] = image[slot] * (1 - share / 256) + image[other] * share / 256
        box = np.s_[int(top) : int(bottom), int(left) : int(right)]
        mixed[slot][box] = image[other][box]
        targets[slot] = label[slot] * (1 - of_label) + label[other] * of_label
    return mixed, targets


@pytest.mark.parametrize(
    "options", [{"mixup": 0.8}, {"cutmix": 1.0}, {"mixup": 0.2, "cutmix": 1.0}]
)
def test_frameworks_make_the_bits_of_the_twin(options: Any) -> None:
    drawn = draws(MixPairs(field="image", **options), COUNT)
    fields = {
        "image": pixels(),
        "label": np.eye(CLASSES, dtype=np.float32)[labels()] * np.float32(0.9),
        "draws": drawn,
    }
    transform = Mix("image", "label", "draws")
    for mask in (np.ones(COUNT, np.bool_), np.arange(COUNT) < COUNT - 3):
        result = finish(fields, [transform], mask)
        assert {*result} == {"image", "label"}
        by_tensorflow = tensorflow_finish(
            {name: tf.constant(x) for name, x in fields.items()}, [transform], tf.constant(mask)
        )
        for name, value in result.items():
            np.testing.assert_array_equal(value, by_tensorflow[name])
        whole = mask.reshape(-1, 2).all(1).repeat(2)
        image, label = twin(fields["image"], fields["label"], drawn * whole[:, np.newaxis])
        np.testing.assert_array_equal(result["image"][mask], np.floor(image + 0.5)[mask])
        np.testing.assert_allclose(result["label"][mask], label[mask], atol=1e-6)
        assert not result["image"][~mask].any()
        assert not result["label"][~mask].any()


@pytest.mark.parametrize("label", [labels(), np.stack([labels()] * 3, 1).astype(np.float32)])
def test_a_partner_has_the_labels_whose_mixture_is_the_mixed_one(label: Any) -> None:
    fields = {
        "image": pixels(),
        "label": label,
        "draws": draws(MixPairs(field="image", mixup=0.8, cutmix=1.0), COUNT),
    }
    transform = Mix("image", "label", "draws", "other", "lam")
    mask = np.arange(COUNT) < COUNT - 3
    result = finish(fields, [transform], mask)
    by_tensorflow = tensorflow_finish(
        {name: tf.constant(x) for name, x in fields.items()}, [transform], tf.constant(mask)
    )
    for name, value in result.items():
        np.testing.assert_array_equal(value, by_tensorflow[name], strict=True)
    one_hot = np.asarray(label, np.float32).reshape(COUNT, -1)
    mixed = finish({**fields, "label": one_hot}, [Mix("image", "label", "draws")], mask)
    np.testing.assert_array_equal(result["image"], mixed["image"])
    np.testing.assert_array_equal(result["label"], label)
    own = result["lam"].reshape(COUNT, 1)
    other = np.asarray(result["other"], np.float32).reshape(COUNT, -1)
    np.testing.assert_array_equal((one_hot * own + other * (1 - own))[mask], mixed["label"][mask])
    assert result["lam"].tolist()[-5:] == [result["lam"][-5], 1, 0, 0, 0]


def test_a_partner_beside_an_empty_slot_leaves_the_last_label() -> None:
    drawn = np.zeros((2, 6), np.int32)
    fields = {"image": pixels()[:2], "label": np.array([14, 0]), "draws": drawn}
    mask = np.array([True, False])
    result = finish(fields, [Mix("image", "label", "draws", "other", "lam")], mask)
    assert result["label"].tolist() == [14, 0]


def test_draws_have_timms_distribution() -> None:
    drawn = draws(
        MixPairs(field="image", mixup=0.4, cutmix=1.0, probability=0.8, switch=0.25), 3000
    )
    area = (drawn[:, 4] - drawn[:, 2]) * (drawn[:, 5] - drawn[:, 3]) / np.prod(SIZE)
    is_cut, is_mixed = area > 0, drawn[:, 0] > 0
    assert not (is_cut & is_mixed).any()
    rng = np.random.default_rng(0)
    own = rng.beta(1, 1, 20_000)
    tops, sizes = [], []
    for length, u in zip(SIZE, rng.uniform(size=(2, 20_000)), strict=True):
        half = (length * np.sqrt(1 - own)).astype(int) // 2
        centre = (length * u).astype(int)
        tops.append(np.maximum(centre - half, 0))
        sizes.append(np.minimum(centre + half, length) - tops[-1])
    expected = sizes[0] * sizes[1] / np.prod(SIZE)
    assert abs(is_cut.mean() - 0.8 * 0.25 * (expected > 0).mean()) < 0.03
    np.testing.assert_allclose(drawn[is_cut, 1], area[is_cut], atol=1e-6)
    shares = np.linspace(0.1, 0.9, 9)
    found = np.quantile(area[is_cut], shares)
    np.testing.assert_allclose(found, np.quantile(expected[expected > 0], shares), atol=0.06)
    mixed = 1 - drawn[~is_cut, 0] / 256  # the unmixed fifth has 1
    twin = np.where(rng.uniform(size=20_000) < 0.75, rng.beta(0.4, 0.4, 20_000), 1)
    np.testing.assert_allclose(np.quantile(mixed, shares), np.quantile(twin, shares), atol=0.07)
    np.testing.assert_array_equal(drawn[is_mixed, 1], drawn[is_mixed, 0] / 256)


def steps(address: str, **options: Any) -> list[Any]:
    with infeed.connect(address, "n", epochs=2, **options) as feed:
        return [(batch["image"].copy(), batch["label"].copy()) for batch in feed]


def joined(batches: list[Any]) -> Any:
    return [np.concatenate(fields) for fields in zip(*batches, strict=True)]


def test_bits_are_those_of_positions_everywhere(serve: Any, tmp_path: Path) -> None:
    text = definition(tmp_path, "mixup: 0.8, cutmix: 1.0")
    one, two = serve(text), serve(text)
    image, label = joined(steps(str(one.address)))
    for options in ({"finish": "server"}, {"batch_size": 8}, {"batch_size": 2}):
        for expected, found in zip(
            (image, label), joined(steps(str(two.address), **options)), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
    for rank in range(3):
        shard = infeed.Shard(rank, 3)
        found = joined(steps(str(two.address), batch_size=2, shard=shard))[0]
        at = (np.arange(len(image)) // 2) % 3 == rank
        np.testing.assert_array_equal(found, image[at])
    with infeed.connect(str(one.address), "n", epochs=2) as feed:
        sent = [field.data_type for field in feed.spec.wire_spec]
        assert sent == ["uint8", "int64", "int32", "float32"]
        assert [field.name for field in feed.spec.element_spec] == ["image", "label"]
        for _ in range(3):
            next(feed)
        state = feed.state()
    resumed = joined(steps(str(two.address), state=state, batch_size=6))[0]
    np.testing.assert_array_equal(resumed, image[12:])
    with pytest.raises(InvalidRequestError, match=r"batch size 3 is odd, .* such as 4"):
        infeed.connect(str(one.address), "n", batch_size=3)


def test_two_labels_and_a_share_are_served(serve: Any, tmp_path: Path) -> None:
    text = definition(tmp_path, "mixup: 0.8, cutmix: 1.0")
    mixed = joined(steps(str(serve(text).address)))[1]
    text = text.replace("cutmix: 1.0", "cutmix: 1.0, partner: label_b")
    two = serve(text.replace("      - one_hot", "      # "))
    for place in ("trainer", "server"):
        with infeed.connect(str(two.address), "n", epochs=2, finish=place) as feed:
            fields = {field.name: field.data_type for field in feed.spec.element_spec}
            batches = [{**batch} for batch in feed]
        assert fields == {
            "image": "float32",
            "label": "int64",
            "label_b": "int64",
            "lam": "float32",
        }
        hot = np.where(np.eye(CLASSES, dtype=np.bool_), np.float32(0.9), np.float32(0.025))
        names = ("label", "label_b", "lam")
        label, other, own = (np.concatenate([batch[n] for batch in batches]) for n in names)
        own = own[:, np.newaxis]
        np.testing.assert_array_equal(hot[label] * own + hot[other] * (1 - own), mixed)


def test_wrong_definitions_are_refused(serve: Any, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="at least one of mixup and cutmix is required"):
        MixPairs(field="x")
    text = definition(tmp_path, "mixup: 0.8")
    for before, after, problem in (
        ("      - one_hot", "      # ", r"label: field 'label' holds int64\[\], .*; put one_hot"),
        (
            "normalize: {field: image, scale: 255.0}",
            "invert: {field: image}",
            "put the others",
        ),
        (
            "mixup: 0.8",
            "mixup: 0.8, partner: image",
            r"partner: 'label' should be numbers, and image and lam new fields; rename",
        ),
        (
            "mixup: 0.8}",
            "mixup: 0.8, partner: label_b}\n      - cast: {field: label, dtype: int32}",
            "a later step would change 'label' but not 'label_b'; put it before",
        ),
        ("size: 4", "size: 5", r"batch.size: 5 is odd"),
    ):
        with pytest.raises(ConfigError, match=problem):
            serve(text.replace(before, after))
