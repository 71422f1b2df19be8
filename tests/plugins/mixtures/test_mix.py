"""Tests of `definition.py`, `mixed.py`, `union.py` and `by_part.py`: definitions to samples."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from infeed.shared.errors import ConfigError
from infeed_server.pipeline import load
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.sample_graph import columns_function

A = {"x": np.arange(50, dtype=np.int64), "label": np.zeros(50, np.int64)}
B = {"x": np.arange(100, 117, dtype=np.int64), "label": np.ones(17, np.int64)}

TARGETS = {"boxes": {"boxes": {"pad": 2}}}


def plan_of(mix: Any, transforms: Any = (), **options: Any) -> IndexedPlan:
    source = {"mix": mix, **options.pop("options", {"block": 8})}
    definition = load.parse(
        {"source": source, "transforms": list(transforms), "batch": 4, **options}
    )
    return plan_indexed("mix", definition, definition.open(), cached=False)


def made(plan: IndexedPlan, count: int) -> dict[str, Any]:
    slots = plan.order(plan.spec.seed).slots(0, count)
    columns = plan.read(slots.index, slots.key)
    run = columns_function(plan.source.columns, plan.sample_function())
    return {name: values.numpy() for name, values in run(columns, slots.key).items()}


def two(first: Any = (), second: Any = (), **parts: Any) -> dict[str, Any]:
    return {
        "a": {"source": {"arrays": A}, "weight": 3, "transforms": list(first)},
        "b": {"source": {"arrays": B}, "weight": "1/2", "transforms": list(second)},
        **parts,
    }


def test_equal_parts_take_no_step_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        plan = plan_of(two())
    assert "an epoch of 67 positions" in caplog.text
    assert "a 1.14, b 0.588" in caplog.text
    assert plan.is_passthrough
    assert plan.spec.sample_count == 67
    assert plan.spec.parts == {"a": 50, "b": 17}
    label = made(plan, 8 * 7 * 12)["label"]
    assert (label == 0).sum() == 8 * 6 * 12


def test_equal_transforms_are_the_mixtures() -> None:
    cast = {"cast": {"field": "x", "dtype": "float32"}}
    plan = plan_of(two([cast], [cast]), [{"cast": {"field": "label", "dtype": "int32"}}])
    assert [step.name for step in plan.source.transforms] == ["cast"]
    assert str(plan.spec.element_spec) == str(plan_of(two(), [cast, cast]).spec.element_spec) or (
        {field.data_type for field in plan.spec.element_spec} == {"float32", "int32"}
    )


def test_parts_have_their_own_columns_and_transforms() -> None:
    other = {"y": np.arange(100, 117, dtype=np.int32), "label": np.ones(17, np.int64)}
    mix = two()
    mix["b"] = {
        "source": {"arrays": other},
        "transforms": [
            {"rename": {"fields": {"y": "x"}}},
            {"cast": {"field": "x", "dtype": "int64"}},
        ],
    }
    plan = plan_of(mix)
    found = made(plan, 200)
    assert (found["x"] >= 100).tolist() == (found["label"] == 1).tolist()
    assert set(found["x"][:134].tolist()) <= {*range(50), *range(100, 117)}


@pytest.mark.parametrize("sizes", [(8, 8), (8, 16)], ids=["as one", "by part"])
def test_targets_of_a_part_move_with_its_pictures(sizes: tuple[int, int]) -> None:
    image = np.zeros((8, 4, 4, 1), np.uint8)
    image[:, 0, 0] = 1
    arrays = {"image": image, "mask": image}
    mix = {}
    for name, size in zip("ab", sizes, strict=True):
        steps: list[Any] = [
            {"resize": {"field": "image", "size": [side, side], "method": "nearest"}}
            for side in (size, 8)
        ]
        steps.append({"random_flip_left_right": {"field": "image"}})
        source = {"arrays": arrays}
        value = {"source": source, "transforms": steps, "targets": {"mask": "mask"}}
        mix[name] = {"pipeline": load.parse(value)}
    found = made(plan_of(mix), 32)
    assert found["image"][:, 0, 0].any()
    assert not found["image"][:, 0, 0].all()
    np.testing.assert_array_equal(found["image"], found["mask"])


def test_a_part_needs_the_exif_of_its_labels(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    sizes = {"photos": (40, 20), "masks": (40, 20), "turned": (20, 40)}
    for folder, size in sizes.items():
        (tmp_path / folder).mkdir()
        for name in "abcd":
            file = tmp_path / folder / f"{name}.{'jpg' if folder == 'photos' else 'png'}"
            Image.new("L", size).save(file, exif=exif)
    mask = {"decode_image": {"field": "mask", "channels": 1}}
    resize = {"resize": {"field": "image", "size": [8, 8]}}

    def part(masks: str, **options: Any) -> dict[str, Any]:
        source = {"images": f"{tmp_path}/photos", "labels": {"masks": f"{tmp_path}/{masks}"}}
        steps = [{"decode_image": {"field": "image", **options}}, mask, resize]
        common = {"targets": {"mask": "mask"}, "part": [0, 0.5]}
        return {"pipeline": load.parse({"source": source, "transforms": steps, **common})}

    with pytest.raises(
        ConfigError, match=r"mix.b.transforms\[0\].decode_image: 'mask' fits .*stor"
    ):
        plan_of({"a": part("masks"), "b": part("masks", exif="apply")})
    # Each part decodes its own photos, so the labels may differ.
    plan_of({"a": part("masks"), "b": part("turned", exif="apply")})


def test_a_mixture_moves_the_targets_of_its_parts() -> None:
    image = np.zeros((8, 6, 8, 1), np.uint8)
    image[:, 2:4, 1:3] = 1
    boxes = np.tile(np.float32([[1, 2, 3, 4]]), (8, 1, 1))
    source = {"arrays": {"image": image, "boxes": boxes}}
    flips = [{"random_flip_left_right": {"field": "image", "draw": name}} for name in "ab"]

    def plan(other: Any, **options: Any) -> IndexedPlan:
        targets = {"boxes": {"boxes": other}}
        pipes = [
            {"source": source, "transforms": flips[:1], "targets": t} for t in (TARGETS, targets)
        ]
        mix = {
            name: {"pipeline": load.parse(value)} for name, value in zip("ab", pipes, strict=True)
        }
        return plan_of(mix, flips[1:], **options)

    with pytest.raises(
        ConfigError, match=r"boxes of 'image' would not .* \{boxes: \{boxes: \{pad: 2"
    ):
        plan({"pad": 2})
    with pytest.raises(ConfigError, match=r"mix.b.targets.boxes: 'boxes' is boxes: .* write both"):
        plan({"pad": 2, "normalized": True}, targets=TARGETS)
    found = made(plan({"pad": 2}, targets=TARGETS), 32)
    assert found["boxes_count"].tolist() == [1] * 32
    lefts = found["image"][:, 2, :, 0].argmax(1)
    assert {*lefts} == {1, 5}
    assert found["boxes"][:, 0].tolist() == [[left, 2, left + 2, 4] for left in lefts]


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A picture with a box, as a source."""
    folder = tmp_path_factory.mktemp("coco")
    picture = tf.io.encode_png(np.zeros((4, 6, 1), np.uint8)).numpy()
    (folder / "a.png").write_bytes(picture)
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2]}
    images, classes = [{"id": 1, "file_name": "a.png"}], [{"id": 1, "name": "x"}]
    document = {"images": images, "annotations": [box], "categories": classes}
    (folder / "a.json").write_text(json.dumps(document))
    return {"images": str(folder), "labels": {"coco": str(folder / "a.json")}}


OF_COCO = {"boxes": {"boxes": {"with": ["label", "iscrowd"], "pad": 3}}}
DECODE: dict[str, Any] = {"decode_image": {"field": "image"}}


def flip(field: str = "image") -> dict[str, Any]:
    return {"random_flip_left_right": {"field": field}}


def resize() -> dict[str, Any]:
    return {"resize": {"field": "image", "size": [8, 8]}}


def renamed(old: str, new: str) -> dict[str, Any]:
    return {"rename": {"fields": {old: new}}}


@pytest.mark.parametrize(
    ("place", "steps"),
    [
        (1, [flip()]),
        (2, [renamed("image", "pic"), flip("pic"), renamed("pic", "image")]),
        (2, [renamed("boxes", "b"), flip(), renamed("b", "boxes")]),
        (1, [{"one_of": {"transforms": [{"random_apply": {"transform": flip()}}, flip()]}}]),
        (1, [{"rand_augment": {"field": "image"}}]),
    ],
    ids=["flip", "rename picture", "rename boxes", "choices", "policy"],
)
def test_a_part_that_moves_a_picture_must_move_its_boxes(
    coco: Any, place: int, steps: list[Any]
) -> None:
    parts = {"a": [DECODE], "b": [DECODE, *steps]}
    mix = {name: {"source": coco, "transforms": some} for name, some in parts.items()}
    problem = (
        rf"mix.b.transforms\[{place}\].* of '\w+' would not move .* targets: {{b\w*: {{boxes: "
    )
    with pytest.raises(ConfigError, match=problem):
        plan_of(mix, targets=OF_COCO)


def test_a_part_that_is_a_mixture_is_refused() -> None:
    inner = {"mix": two()}
    of_mixture = load.parse({"source": inner, "batch": 4})
    for part in ({"source": inner}, {"pipeline": of_mixture}):
        with pytest.raises(ConfigError, match=r"mix.c: it is itself a mixture; name its parts"):
            plan_of(two(c=part))


@pytest.mark.parametrize("place", ["source", r"add\[0\]"])
def test_nothing_is_added_to_a_mixture(place: str) -> None:
    mixture, plain = {"mix": two()}, {"arrays": A}
    source, added = (mixture, plain) if place == "source" else (plain, mixture)
    definition = load.parse({"source": source, "add": [added], "batch": 4})
    with pytest.raises(ConfigError, match=f"{place}.* mix has an order of its own"):
        definition.open()


def test_targets_of_parts_are_known_to_trainers(coco: Any) -> None:
    parts = {
        name: {"source": coco, "transforms": [DECODE, *some], "targets": OF_COCO}
        for name, some in {"a": [resize()], "b": [flip(), resize()]}.items()
    }
    small = {"batch": 1}
    spec = plan_of(parts, **small).spec
    assert [(one.field, one.picture, one.kind) for one in spec.targets] == [
        ("boxes", "image", "boxes")
    ]
    assert spec.targets == plan_of(parts, [flip()], targets=OF_COCO, **small).spec.targets
    assert plan_of(parts, [renamed("boxes", "b")], **small).spec.targets[0].field == "b"
    assert not plan_of(parts, [{"drop": {"fields": ["image"]}}], **small).spec.targets
    with pytest.raises(ConfigError, match="should have transforms or targets in its pipeline"):
        plan_of({"a": {"pipeline": "a", "targets": OF_COCO}})


def test_a_field_that_a_part_forgot_is_named_with_the_others(coco: Any) -> None:
    targets = {"boxes": {"boxes": {"with": ["label"], "pad": 3}}}
    steps = [DECODE, resize()]
    parts = {"a": {"source": coco, "transforms": steps, "targets": targets}}
    with pytest.raises(ConfigError, match=r"with: \[iscrowd, label\] of 'boxes', where these"):
        plan_of(parts, batch=1)


def test_different_fields_are_an_error_with_both() -> None:
    cast = {"cast": {"field": "x", "dtype": "float32"}}
    with pytest.raises(ConfigError, match=r"'a' has label: int64\[\], x: float32\[\], but 'b'"):
        plan_of(two([cast]))


def test_a_name_is_of_a_pipeline_of_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **A)
    np.savez(tmp_path / "b.npz", **B)
    text = """
pipelines:
  a: {source: {arrays: a.npz}, batch: 4}
  both:
    mix:
      web: {pipeline: a, weight: 0.7}
      books: {source: {arrays: b.npz}, weight: 0.3}
    batch: 4
"""
    (tmp_path / "p.yaml").write_text(text)
    pipelines = load.load(str(tmp_path / "p.yaml"))
    plan = plan_indexed("both", pipelines["both"], pipelines["both"].open())
    assert plan.spec.parts == {"web": 50, "books": 17}
    (tmp_path / "p.yaml").write_text(text.replace("pipeline: a", "pipeline: aa"))
    with pytest.raises(ConfigError, match=r"p.yaml:6: .*no valid pipeline 'aa' \(did you mean"):
        load.load(str(tmp_path / "p.yaml"))
    (tmp_path / "p.yaml").write_text(text.replace("pipeline: a", "pipeline: boths"))
    with pytest.raises(ConfigError, match=r"no valid pipeline 'boths'; available: a$"):
        load.load(str(tmp_path / "p.yaml"))


def test_an_epoch_that_stops_ends_with_the_first_part() -> None:
    options = {"block": 8, "exhausted": "stop"}
    plan = plan_of(two(), options=options, shuffle={"mode": "global"})
    x = made(plan, plan.epoch_length)["x"]
    assert len(set(x.tolist())) == len(x) == plan.spec.sample_count
    assert 56 <= len(x) <= 60  # 50 of a, and a sixth as many of b


def test_the_fingerprint_has_weights_stages_and_epoch() -> None:
    weights = {"a": 1, "b": 1}
    plans = [
        plan_of(two()),
        plan_of(two(), options={"block": 16}),
        plan_of(two(), options={"block": 8, "epoch": 90}),
        plan_of(two(), options={"block": 8, "stages": [{"from": 64, "weights": weights}]}),
        plan_of({**two(), "a": {"source": {"arrays": A}, "weight": 3.5}}),
    ]
    assert len({plan.spec.fingerprint for plan in plans}) == len(plans)
    assert plans[0].spec.fingerprint == plan_of(two()).spec.fingerprint


@pytest.mark.parametrize(
    ("mix", "options", "problem"),
    [
        (two(c={"source": {"arrays": A}, "weight": -1}), {}, "should be 0 or more"),
        (two(c={"source": {"arrays": A}, "weight": "x"}), {}, "3, 0.7 or 2/3"),
        (two(c={"source": {"arrays": A}, "weight": "1_000"}), {}, "3, 0.7 or 2/3"),
        (two(c={"source": {"arrays": A}, "weight": True}), {}, "3, 0.7 or 2/3"),
        (two(c={"weight": 1}), {}, "either source or pipeline"),
        (
            {"a": {"source": {"arrays": A}, "weight": 0}},
            {},
            "the weights of mix: all are 0; make .* positive$",
        ),
        (
            two(),
            {"block": 8, "stages": [{"from": 8, "weights": {"a": 0, "b": 0}}]},
            r"stages\[0\].weights: all are 0",
        ),
        (two(), {"stages": [{"from": 9, "weights": {"a": 1, "b": 1}}]}, "multiple of block"),
        (two(), {"stages": [{"from": 1024, "weights": {"a": 1}}]}, "each of a, b"),
        (two(c={"pipeline": "z"}), {}, "give the pipeline itself"),
        (two(), {"exhausted": "stop", "epoch": 9}, "stop cannot go with stages, epoch or max_"),
        *(
            (
                two(c={"pipeline": load.parse({"source": {"arrays": B}, "batch": 4} | option)}),
                {},
                f"its pipeline has {next(iter(option))}; give it to the mixture",
            )
            for option in ({"remove": [3]}, {"skip": [[0, 1]]})
        ),
        (
            two([{"map": {"function": dict, "python": True}}]),
            {},
            r"transforms\[0\] is a Python function, which a part cannot have",
        ),
        (
            two(c={"source": {"arrays": B}, "weight": 9, "max_epochs": 2}),
            {"block": 1},
            r"^source.mix.c.max_epochs: part 'c' begins its epoch 3 at about position",
        ),
        (
            {"": {"source": {"arrays": A}}},
            {},
            "^source.mix.: .* at least 1 character",
        ),
    ],
)
def test_impossible_mixtures_are_refused(mix: Any, options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan_of(mix, options=options)


def test_the_epoch_that_max_epochs_advises_is_safe() -> None:
    mix = {
        "a": {"source": {"arrays": B}, "max_epochs": 1},
        "b": {"source": {"arrays": A}, "weight": 2},
    }
    with pytest.raises(ConfigError, match="shorten epoch to ") as caught:
        plan_of(mix)
    longest = int(str(caught.value).rpartition(" ")[2])
    plan = plan_of(mix, options={"epoch": longest})
    for seed in range(7):
        plan.order(seed).require(0, longest)
    with pytest.raises(ConfigError, match=f"shorten epoch to {longest}"):
        plan_of(mix, options={"epoch": longest + 1})


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (
            {"mix": two(), "exhausted": "stop"},
            r"with mix: source: {mix: \.\.\., exhausted: ",
        ),
        (
            {"mix": two(c={"source": {"images": "a"}, "labels": "folders"})},
            r"with images: source: {images.*; allowed: balance, max_epochs, part, pipeline, source",
        ),
    ],
)
def test_an_option_beside_its_source_is_an_error_with_its_place(options: Any, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '.*'; move it under source, {hint}"):
        load.parse({"batch": 4, **options})


def test_other_classes_are_an_error_with_both(tmp_path: Path) -> None:
    for name in ("a/ant", "a/cat", "b/cat", "b/dog"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "0.jpg").write_bytes(b"\xff\xd8\xff")
    sources = {name: {"images": str(tmp_path / name), "labels": "folders"} for name in "ab"}
    mix = {name: {"source": source} for name, source in sources.items()}
    with pytest.raises(ConfigError, match="b has the column 'label' where 0 is 'cat', not 'ant'"):
        plan_of(mix)
    same = {name: {"source": sources["a"]} for name in "ab"}
    same["b"]["transforms"] = [{"rename": {"fields": {"label": "x", "image": "y"}}}]
    same["b"]["transforms"] += [{"rename": {"fields": {"x": "label", "y": "image"}}}]
    assert plan_of(same).spec.classes == {"label": ("ant", "cat")}
    for part in (mix, same):  # the names are those behind the transforms
        for one in part.values():
            one["transforms"] = [{"rename": {"fields": {"label": "kind"}}}]
    assert plan_of(same).spec.classes == {"kind": ("ant", "cat")}
    mix["b"]["transforms"] += [{"cast": {"field": "kind", "dtype": "int64"}}]
    with pytest.raises(ConfigError, match="b has the column 'kind' where 0 is 'cat', not 'ant'"):
        plan_of(mix)


def test_removed_samples_have_substitutes_of_their_part() -> None:
    plan = plan_of(two(), remove=[50, 51], shuffle={"mode": "global"})
    found = made(plan, 300)
    assert not np.isin([100, 101], found["x"]).any()
    assert (found["label"] == 0).sum() == pytest.approx(300 * 6 / 7, abs=8)
    with pytest.raises(ConfigError, match=r"^remove.then: shrink cannot go with a mixture"):
        plan_of(two(), remove={"samples": [50], "then": "shrink"})
    with pytest.raises(ConfigError, match="all 17 samples of part 'b'"):
        plan_of(two(), remove=list(range(50, 67)))
