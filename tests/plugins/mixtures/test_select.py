"""Tests of `select.py`, `selected.py` and `condition.py`: chosen samples, and balanced classes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError, SampleError
from infeed_mixtures.condition import Condition
from infeed_mixtures.selected import SelectedSource
from infeed_server.pipeline import load
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.sources.base import Source

LABELS = np.array([0] * 60 + [1] * 30 + [2] * 10)
ARRAYS = {
    "x": np.arange(100),
    "label": LABELS,
    "word": np.array([b"ab", b"abc"] * 50, object),
    "pair": np.zeros((100, 2)),
    "quad": np.zeros((100, 4)),
    "grid": np.zeros((100, 3, 2)),
    "small": (np.arange(100) % 10).astype(np.uint8),
    "large": np.arange(100).astype(np.uint64) + np.uint64(2**63 - 50),
    "half": (np.arange(100) / 2).astype(np.float16),
    "flag": np.arange(100) < 3,
    "fixed": np.array([b"ab", b"abc"] * 50),
    "str": np.array(["ab", "\xe9"] * 50),
}
X = np.arange(100)


def opened(**options: Any) -> Source:
    options = {"source": {"arrays": ARRAYS}, "batch": 4} | options
    return load.parse(options).open()


def values(source: Source, name: str = "x") -> list[Any]:
    found: list[Any] = source.read(np.arange(len(source)))[name].tolist()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("label < 1", LABELS < 1),
        ("0 < label <= 1 or x == 7", (LABELS == 1) | (np.arange(100) == 7)),
        ("not label in [0, 1]", LABELS == 2),
        ("label not in (0, 2) and x % 2 == 0", (LABELS == 1) & (np.arange(100) % 2 == 0)),
        ("length(word) == 3", np.arange(100) % 2 == 1),
        ("word == 'ab'", np.arange(100) % 2 == 0),
        ("label == 'cat'", LABELS == 1),
        ("label in ['cat', 'cow']", LABELS > 0),
        ("x * 2 - 1 > -x + 50", X >= 18),
        # no type of a field wraps, casts or cuts
        ("small * 30 > 200", X % 10 > 6),
        ("small - 5 < 0 and -small < 0", (X % 10 < 5) & (X % 10 > 0)),
        ("small + 1000 > 1007", X % 10 > 7),
        ("small in [1.5, 300, -1, 3]", X % 10 == 3),
        ("x + 99999999999999999999 == 100000000000000000001", X == 2),
        ("large > 9223372036854775807", X > 49),
        ("large * large % 2 == 1 and large // 2 >= 4611686018427387904", (X > 49) & (X % 2 == 1)),
        ("large - 9223372036854775758 in [2, 3]", (X == 2) | (X == 3)),
        ("half in [0.5, 1] or half / 2 == 1", (X == 1) | (X == 2) | (X == 4)),
        ("not flag and flag + x < 5", (X > 2) & (X < 5)),
        ("x != 0 and 10 / x > 5 and 10 % x == 0", X == 1),
        ("fixed in ['abcdef', 'ab']", X % 2 == 0),
        ("word != 'ab\\0'", X >= 0),
        ("str == 'ab' or str in ['a']", X % 2 == 0),
        ("str == '\xe9' and length(str) == 2", X % 2 == 1),
    ],
)
def test_a_condition_is_evaluated_for_all_samples(text: str, expected: Any) -> None:
    condition = Condition(text)
    found = condition.holds(
        {n: ARRAYS[n] for n in condition.fields}, {"label": ["ant", "cat", "cow"]}
    )
    assert found.tolist() == expected.tolist()


LABELS_OF_BOXES = np.empty(4, object)
LABELS_OF_BOXES[:] = [np.array(row, np.int64) for row in ([], [1], [2, 1, 0], [0])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("length(label) > 0", [1, 2, 3]),
        ("any(label == 'cat')", [1, 2]),
        ("any(label in [2, 3]) or length(label) == 0", [0, 2]),
        ("length(label) > 0 and not any(label != 0)", [3]),
        ("any(label + n == 4)", [2]),  # one value of a sample goes with each row
    ],
)
def test_a_condition_on_rows_is_evaluated_for_all_samples(text: str, expected: Any) -> None:
    fields = {"label": LABELS_OF_BOXES, "n": np.arange(4)}
    condition = Condition(text)
    known = {name: fields[name] for name in condition.fields}
    found = condition.holds(known, {"label": ["ant", "cat", "cow"]})
    assert np.flatnonzero(found).tolist() == expected


def test_the_name_of_two_classes_is_no_condition() -> None:
    with pytest.raises(ValueError, match="'cat', which names several classes of 'label'; give"):
        Condition("label == 'cat'").holds({"label": LABELS}, {"label": ["cat", "dog", "cat"]})


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x.real > 1",
        "x[0] > 1",
        "(lambda: x)() > 1",
        "x if x else label",
        "x <",
        "",
        "1 < 2",
        "x is 1",
        "x in [word]",
        "[1] * 99999999999 == x",
        "word == '\\d'",
        "-" * 900 + "x < 1",
        "x[" + "not " * 2000 + "x]",
        "x" + " + x" * 4000 + " < 1",
        "(" * 9000,
        "x" * 10001,
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(should (have|be a) |has .* is none of fields, num)"):
        Condition(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "lable < 1",
            r"no field 'lable' \(did you mean 'label'\?\); available: fixed, flag",
        ),
        ("x + 1", "where: 'x \\+ 1' should be a comparison"),
        ("x == 1 or 2", "should be a comparison .*; 2 is not one"),
        ("x in 3", "^where: should have a list of values after in"),
        ("x % 0 == 0", r"where: 'x % 0 == 0' divides by 0, 1 times; exclude 0 first"),
        ("1 // small > 0", "divides by 0, 10 times"),
        ("word < 3", "compares a text with a number, at word"),
        ("x + 1 in ['a']", "compares a text with a number"),
        ("word * 99999999999 == 'a'", "has a text in"),
        ("length(x) == 1", "takes the length of x, which is neither a text nor has rows"),
        (f"x * 1{'0' * 400} / 2 > 1", "has an integer beyond the range of floats"),
        ("label == 'cat'", "'cat', which is not a class of 'label'; it has no names"),
        ("x > 1000", "no sample meets"),
        (
            "pair > 3",
            r"compares 'pair', which has several .*; write any\(pair > 3\)$",
        ),
        ("x > 3 or not pair in [3]", r"write any\(pair in \[3\]\)$"),
        ("pair", r"write any\(pair == 3\)$"),
        ("grid > 3", r"compares 'grid', which has several .*; write length\(grid\) > 0"),
        (
            "any(length(grid) > 2)",
            r"has length\(grid\), .*; write it outside of any",
        ),
        ("any(x > 3)", "needs a field with rows in any, at x > 3"),
        ("any(pair + quad > 3)", "has 'quad' in any, with other rows in a sample than"),
        ("any(grid > 3)", "has 'grid' in any, with 2 values in each row instead of one"),
    ],
)
def test_a_condition_that_fits_no_samples_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        opened(where=text)


def test_shares_of_a_source_are_disjoint_and_whole() -> None:
    train, rest = opened(part=[0, 0.8]), opened(part=[0.8, 1])
    assert (len(train), len(rest)) == (80, 20)
    assert sorted(values(train) + values(rest)) == [*range(100)]
    assert values(train) == sorted(values(train))
    other = opened(part={"range": [0, 0.8], "seed": 1})
    assert values(other) != values(train)
    assert other.identity != train.identity


def test_part_comes_before_where() -> None:
    train, rest = opened(part=[0, 0.5], where="label == 0"), opened(part=[0.5, 1], where="x < 50")
    whole = opened(part=[0, 0.5])
    assert values(train) == [x for x in values(whole) if x < 60]
    assert not {*values(train)} & {*values(rest)}


def test_classes_come_equally_often() -> None:
    options = {"source": {"arrays": ARRAYS}, "balance": {"field": "label"}, "batch": 4}
    definition = load.parse({**options, "shuffle": {"mode": "global"}})
    plan: IndexedPlan = plan_indexed("p", definition, definition.open())
    assert plan.spec.parts == {"label=0": 60, "label=1": 30, "label=2": 10}
    found = plan.source.read(plan.order(0).slots(0, 3072).index)
    assert np.bincount(found["label"]).tolist() == [1024] * 3
    assert set(found["x"].tolist()) == set(range(100))


def test_each_balanced_class_has_a_name_of_its_own() -> None:
    def balanced(*values: bytes) -> Source:
        word = np.array(values, object)
        return opened(source={"arrays": {"word": word}}, balance={"field": "word"})

    assert balanced(b"a\xff", b"a\xfe").part_sizes == {"word=a\\xfe": 1, "word=a\\xff": 1}
    with pytest.raises(ConfigError, match=r"b'a.*xfe' and b'a.*xfe' of 'word' are both .* named"):
        balanced(b"a\\xfe", b"a\xfe")


def test_a_sample_keeps_its_place_and_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        (tmp_path / f"{number}.jpg").write_bytes(b"\xff\xd8\xff")
    source = opened(source={"images": str(tmp_path)}, part=[0.5, 1])
    chosen = [Path(source.provenance(index).file).name for index in range(4)]
    assert chosen[2] == "6.jpg"
    assert [*source.places.samples_in(chosen[2])] == [range(2, 3)]
    assert isinstance(source, SelectedSource)

    def fail(indices: Any) -> Any:
        raise SampleError("is torn", sample=int(indices[-1]))

    monkeypatch.setattr(source.source, "read", fail)
    with pytest.raises(SampleError) as caught:
        source.read(np.array([1, 2]))
    assert (caught.value.sample, caught.value.metadata["sample_id"]) == (2, "2")


def test_a_field_that_is_not_known_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for number in range(20):
            values = {"n": [number], "rows": [number % 5, number % 3]}
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
                for name, value in values.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    features = {"n": "int64", "rows": {"type": "int64", "shape": [2]}}
    source = {"tfrecord": str(tmp_path / "a.tfrecord"), "features": features}
    with caplog.at_level(logging.WARNING):
        chosen = opened(source=source, where="n >= 15")
    assert len(chosen) == 5
    assert "reads all 20 samples" in caplog.text
    assert len(opened(source=source, where="any(rows == 4) and length(rows) > 1")) == 4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"part": [0.8, 0.2]}, r"^part: .* a begin and a larger end from .* not \[0.8, 0.2\]$"),
        ({"part": 0.8}, r"^part: should be a valid list such as \[0, 0.8\], not 0.8"),
        ({"part": {"range": 0.8}}, r"^part.range: .* such as \[0, 0.8\], not 0.8"),
        ({"where": {"label": [1]}}, "^where: should be a valid string such as label == 'cat', not"),
        ({"balance": "y"}, "^balance: should be a valid mapping such as {field: label}, not 'y'"),
        ({"part": [0, 0.001]}, "contains none of the 100 samples"),
        ({"where": "x.real"}, "^where: has .*which is none of fields"),
        ({"part": [0, 0.5], "add": [{"arrays": ARRAYS}]}, "in each source, not beside add"),
        ({"balance": {"field": "y"}}, "no field 'y'"),
        ({"balance": {"field": "pair"}}, r"balance takes one value; mix parts .* any\(pair == 0\)"),
    ],
)
def test_impossible_selections_are_refused(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        opened(**options)


def test_a_selection_of_a_mixture_is_refused() -> None:
    mix = {"a": {"source": {"arrays": ARRAYS}, "where": "x < 10"}}
    source = load.parse({"mix": mix, "batch": 4}).open()
    assert source.part_sizes == {"a": 10}
    with pytest.raises(ConfigError, match="give it to each part"):
        load.parse({"mix": mix, "where": "x < 5", "batch": 4}).open()
    balanced = {"a": {"source": {"arrays": ARRAYS}, "balance": {"field": "label"}}}
    with pytest.raises(ConfigError, match="itself a mixture"):
        load.parse({"mix": balanced, "batch": 4}).open()


def test_a_definition_in_python_has_the_same_options() -> None:
    made = Pipeline(source={"arrays": ARRAYS}, part=(0, 0.5), where="x < 50", batch=4)
    assert len(made.open()) == len(opened(part=[0, 0.5], where="x < 50"))
