"""Tests of the native decoder in the engine: the same batches and bad samples as by TensorFlow."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.harness.datasets import jpeg
from tests.harness.native_double import DecoderDouble, require_decoder
from tests.harness.recorded import RecordedEvents
from tests.harness.tfrecords import example, write_records

from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.cache import store
from infeed_server.engines.base import HostBatch, Request, Trainer
from infeed_server.engines.indexed.batch_graph import make_early
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.runtime.engine_factory import build
from infeed_server.transforms.images.jpeg import END_OF_IMAGE

DECODE: dict[str, Any] = {"decode_image": {"field": "image", "max_pixels": 2060}}
CROP: dict[str, Any] = {"random_resized_crop": {"field": "image", "size": [8, 9]}}
FLIP: dict[str, Any] = {"random_flip_left_right": {"field": "image"}}
RESIZE: dict[str, Any] = {"resize": {"field": "image", "size": [8, 9]}}
BRIGHTNESS: dict[str, Any] = {"random_brightness": {"field": "image", "max_delta": 0.2}}
CENTRE: dict[str, Any] = {"center_crop": {"field": "image", "size": [20, 30]}}
SHORT: dict[str, Any] = {"resize": {"field": "image", "short_side": 11, "antialias": True}}
LARGE: dict[str, Any] = {"resize": {"field": "image", "size": [200, 210]}}
CAST: dict[str, Any] = {"cast": {"field": "image", "dtype": "int32"}}
SMALL: dict[str, Any] = {"center_crop": {"field": "image", "size": [8, 9]}}

STEPS: dict[str, list[Any]] = {
    "crop": [DECODE, CROP, FLIP],
    "resize": [DECODE, RESIZE, FLIP],
    "centre": [DECODE, CENTRE],
    "behind": [DECODE, CROP, FLIP, BRIGHTNESS],
    "cache before": [{"cache": "memory"}, DECODE, CROP],
    "last in cache": [DECODE, SHORT, SMALL, {"cache": "memory"}],
    "small cache": [DECODE, LARGE, {"cache": {"store": "memory", "budget": "1MiB"}}, FLIP],
    "cast in cache": [DECODE, RESIZE, CAST, "cache", FLIP],
    "evaluation": [DECODE, SHORT, SMALL],
}


def pictures() -> list[bytes]:
    """Returns 24 JPEGs: one cut off, one no JPEG but a number, one small, two above `max_pixels`,
    one with bytes behind its end."""
    sizes = [(40 + number, 30 + number % 7) for number in range(24)]
    found = [jpeg(number, size, grey=number % 5 == 0) for number, size in enumerate(sizes)]
    found[3], found[11], found[17] = found[3][:-200], b"7", jpeg(17, (12, 9))
    found[8] += b"\0\0"
    return found


def source_of(kind: str, root: Path) -> dict[str, Any]:
    if kind == "arrays":
        return {"arrays": {"image": np.array(pictures(), object), "label": np.arange(24)}}
    records = [
        example({"image": [content], "label": [number]})
        for number, content in enumerate(pictures())
    ]
    records[20] = b"no example"
    write_records(root / "a.tfrecord", records)
    features = {"image": "bytes", "label": "int64"}
    return {"tfrecord": str(root / "a.tfrecord"), "features": features}


def run(
    definition: dict[str, Any], root: Path, decoder: Any, size: int = 6
) -> tuple[list[Any], list[Any], IndexedEngine]:
    """Returns the batches of two epochs or their errors, and the bad samples."""
    quarantine = str(root / "bad.jsonl")
    pipeline = parse({**definition, "quarantine": quarantine, "batch": size})
    engine = build("p", pipeline, Monitor(), decoder=decoder)
    assert isinstance(engine, IndexedEngine)
    answers: list[Any] = []
    with closing(engine), closing(engine.open(size, 0, Trainer())) as session:
        session.set_batch_bytes(1000)
        futures = [session.submit(Request(3, start, size, size)) for start in range(0, 48, size)]
        for future in futures:
            try:
                batch = future.result(60)
            except InfeedError as error:
                answers.append(str(error))
            else:
                assert isinstance(batch, HostBatch)
                answers.append([batch.sample_ids, batch.mask, *batch.arrays.values()])
            session.on_sent()
    bad = [(one["sample_id"], one["stage"], one["error"]) for one in engine.bad_samples()]
    return answers, sorted(bad), engine


def counts_of(engine: IndexedEngine) -> dict[str, int]:
    pictures = engine.plan.pictures
    assert not isinstance(pictures, str)
    return pictures.counts.by_status()


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DecoderDouble]:
    """`double(is_odd)` is the native decoder of this machine."""

    def make(*arguments: Any) -> DecoderDouble:
        decoder = DecoderDouble(*arguments)
        monkeypatch.setitem(sys.modules, "infeed_jpeg", decoder)  # type: ignore[arg-type]
        return decoder

    return make


@pytest.mark.parametrize(
    ("steps", "kind", "on_error"),
    [
        ("crop", "tfrecord", "substitute"),
        ("resize", "arrays", "raise"),
        ("behind", "tfrecord", "mask"),
        ("behind", "arrays", "raise"),
        ("cache before", "arrays", "mask"),
        ("last in cache", "tfrecord", "substitute"),
        ("small cache", "tfrecord", "mask"),
        ("cast in cache", "arrays", "mask"),
        ("evaluation", "arrays", "raise"),
    ],
)
def test_batches_are_those_of_tensorflow(
    double: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: str,
    kind: str,
    on_error: str,
) -> None:
    double(lambda record: len(record) % 2)
    monkeypatch.setattr(store, "_MAX_REFUSED", 2)  # of a cache that is full
    definition = {
        "source": source_of(kind, tmp_path),
        "shuffle": {"seed": 5},
        "transforms": STEPS[steps],
        "on_error": on_error,
    }
    expected, bad, _ = run(definition, tmp_path, "tensorflow")
    found, same_bad, engine = run(definition, tmp_path, "auto")
    assert len(found) == len(expected) == 8
    for batch, other in zip(found, expected, strict=True):
        if isinstance(other, str):
            assert batch == other
        else:
            assert all(map(np.array_equal, batch, other))
            assert [array.dtype for array in batch] == [array.dtype for array in other]
    assert same_bad == bad
    assert bad
    assert counts_of(engine)["decoded"] > 8
    if not steps.endswith("cache"):  # also where a sample is unreadable
        assert sum(counts_of(engine).values()) >= 48


@pytest.mark.parametrize("steps", ["crop", "behind"])
def test_pictures_that_are_cut_off_wait_for_their_examination(
    double: Any, tmp_path: Path, steps: str
) -> None:
    double()
    definition = {"source": source_of("arrays", tmp_path), "transforms": STEPS[steps]}
    pipeline = parse({**definition, "batch": 24})
    plan = plan_indexed("p", pipeline, pipeline.open(), decoder="auto")
    made = []
    for cut_off in (False, True):
        task = BatchTask(Request(1, 0, 24, 24), plan.order(1), MemoryBudget(1).open_quota("p"))
        task.assign_samples()
        columns = plan.read(task.index, task.key)
        rows = make_early(plan, task, task.left, columns, map, cut_off=cut_off)
        assert np.array_equal(task.index[rows["slot"]], rows["index"])
        assert all(len(column) == len(rows["slot"]) for column in rows["columns"].values())
        assert set(rows["slot"]) <= set(task.left)
        made.append(set(rows["index"]))
    assert made[1] - made[0] == {3, 8}


@pytest.mark.parametrize(
    ("decoder", "steps", "on_error"),
    [
        ("native", "evaluation", "substitute"),
        ("native", "behind", "raise"),
        ("native", "behind", "mask"),
        ("tensorflow", "evaluation", "mask"),
    ],
)
def test_pictures_of_filled_slots_are_counted_once(
    double: Any, tmp_path: Path, decoder: str, steps: str, on_error: str
) -> None:
    double()
    files = np.array([jpeg(number) for number in range(5)], object)
    files[3] = files[3][:-200]
    definition = {
        "source": {"arrays": {"image": files}},
        "shuffle": {"mode": "none"},
        "transforms": STEPS[steps],
        "on_error": on_error,
        "quarantine": str(tmp_path / "bad.jsonl"),
        "batch": 4,
    }
    events = RecordedEvents()
    engine = build("p", parse(definition), events, decoder=decoder)
    assert engine.figures().pictures == {"native": 0, "tensorflow": 0}
    with closing(engine), closing(engine.open(4, 0, Trainer())) as session:
        session.set_batch_bytes(1000)
        for request in (Request(1, 4, 1, 4), Request(1, 3, 1, 4), Request(1, 2, 0, 4)):
            with suppress(InfeedError):
                session.submit(request).result(60)
            session.on_sent()
        pictures = engine.figures().pictures
    assert sum(pictures.values()) == 2
    assert events.sums["infeed_bad_samples", "p", on_error] == 1


def assert_decoders_agree(definition: dict[str, Any], root: Path) -> IndexedEngine:
    expected, bad, _ = run(definition, root, "tensorflow")
    found, same_bad, engine = run(definition, root, "auto")
    for batch, other in zip(found, expected, strict=True):
        assert all(map(np.array_equal, batch, other))
    assert same_bad == bad
    return engine


def test_installed_decoder_makes_the_same_batches(tmp_path: Path) -> None:
    require_decoder()
    definition = {
        "source": source_of("arrays", tmp_path),
        "transforms": STEPS["centre"],
        "on_error": "substitute",
    }
    engine = assert_decoders_agree(definition, tmp_path)
    statuses = {"decoded", "with too many pixels", "window outside of the picture"}
    assert statuses < set(counts_of(engine))


def test_servers_with_either_decoder_share_a_cache(double: Any, tmp_path: Path) -> None:
    double(lambda record: len(record) % 2)
    files = [jpeg(number, (40 + number, 30)) for number in range(24)]
    definition: dict[str, Any] = {
        "source": {"arrays": {"image": np.array(files, object), "label": np.arange(24)}},
        "transforms": [DECODE, SHORT, SMALL, "cache", FLIP],
    }
    expected, _, _ = run(definition, tmp_path, "tensorflow")
    definition["transforms"][3] = {"cache": {"store": "disk", "path": str(tmp_path)}}
    for decoder, misses in (("native", 24), ("tensorflow", 0)):
        found, _, engine = run(definition, tmp_path, decoder)
        assert engine.figures().sample_counts["cache_misses"] == misses
        for batch, other in zip(found, expected, strict=True):
            assert all(map(np.array_equal, batch, other))


def damaged_pictures(seed: int) -> list[bytes]:
    """Returns JPEGs with their last marker: half of them progressive and cut, half of them baseline
    with other bytes in a sector."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(24):
        out = io.BytesIO()
        pixels = rng.integers(0, 256, (80 + number, 90, 3), np.uint8)
        Image.fromarray(pixels).save(out, "JPEG", progressive=number % 2 == 0)
        content, half = out.getvalue(), len(out.getvalue()) // 2
        sector = rng.integers(0, 255 + number % 4 // 2, 512, np.uint8).tobytes()
        cut = content[: half * 3 // 2] + END_OF_IMAGE
        found.append(content[:half] + sector + content[half + 512 :] if number % 2 else cut)
    return found


@pytest.mark.parametrize(
    "steps",
    [
        [{"random_resized_crop": {"field": "image", "draw": "image", "size": [8, 9]}}],
        [SHORT, SMALL],
    ],
)
def test_damaged_pictures_of_two_fields_are_those_of_tensorflow(
    tmp_path: Path, steps: list[Any]
) -> None:
    require_decoder()
    fields = {"image": damaged_pictures(1), "other": damaged_pictures(2)}
    definition = {
        "source": {"arrays": {name: np.array(data, object) for name, data in fields.items()}},
        "transforms": [
            *({"decode_image": {"field": name}} for name in fields),
            *steps,
            {"random_resized_crop": {"field": "other", "draw": "other", "size": [8, 9]}},
        ],
        "on_error": "mask",
    }
    engine = assert_decoders_agree(definition, tmp_path)
    assert {"damaged", "progressive"} <= set(counts_of(engine))


def test_native_is_refused_where_it_cannot_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = {"source": source_of("arrays", tmp_path), "transforms": [DECODE, RESIZE]}
    monkeypatch.setitem(sys.modules, "infeed_jpeg", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="--decoder native: the package infeed-jpeg is not inst"):
        run(definition, tmp_path, "native")
    monkeypatch.setitem(sys.modules, "infeed_jpeg", DecoderDouble(unavailable="no AVX2"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="--decoder native: infeed-jpeg: no AVX2"):
        run(definition, tmp_path, "native")
    monkeypatch.setitem(sys.modules, "infeed_jpeg", DecoderDouble())  # type: ignore[arg-type]
    definition["transforms"] = [DECODE, {"resize": {**RESIZE["resize"], "method": "area"}}]
    with pytest.raises(
        ConfigError, match="--decoder native: resize has method: area; leave out --decoder"
    ):
        run(definition, tmp_path, "native")
