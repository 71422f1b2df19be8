"""The choice of `cache: auto`: by forecast, and by measurement in cases with a known answer."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.engines.indexed import cache_choice
from infeed_server.engines.indexed.cache_choice import Forecast, choose, pick
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sample_cache import CacheChoice, CachedSource
from infeed_server.processes import cgroup
from infeed_server.sources import open_source

NONE = Forecast(0, "none", 0, "no cache", 0, 0, 100, 100)


def forecast(store: str, later: float, size: float = 10, share: float = 1.0) -> Forecast:
    return Forecast(1, store, 1000, "resize", size, share, 90, later)


@pytest.mark.parametrize(
    ("table", "best"),
    [
        ([forecast("memory", 105)], 0),  # gains too little
        ([forecast("memory", 300), forecast("disk", 290)], 1),
        ([forecast("memory", 150, share=0.2), forecast("disk", 500)], 2),
        ([forecast("memory", 300, size=99), forecast("memory", 295)], 2),  # similar, and smaller
    ],
)
def test_fastest_later_epoch_is_picked_unless_it_gains_nothing(
    table: list[Forecast], best: int
) -> None:
    rows = [NONE, *table]
    assert pick(rows) is rows[best]


def slow_images(size: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    shape = (size, size, 3)
    return [tf.io.encode_jpeg(rng.integers(0, 256, shape, np.uint8)).numpy() for _ in range(8)] * 10


class SlowReads:
    """Rows whose reading waits 5 ms, as an object store does."""

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(0.005)
        return {"x": np.full(10, index)}


Plan = Callable[..., IndexedPlan]


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    def make(source: Any, *transforms: Any, **options: Any) -> IndexedPlan:
        cache = {"store": "auto", "path": str(tmp_path), **options}
        definition = parse(
            {"source": source, "transforms": transforms, "batch": {"size": 8}, "cache": cache}
        )
        return plan_indexed("p", definition, open_source(definition.source), choose=choose)

    return make


def place(plan: IndexedPlan) -> int | None:
    """Returns the transforms before the cache; None: there is no cache."""
    return len(plan.source.steps) if isinstance(plan.source, CachedSource) else None


DECODE = ({"decode_image": {"field": "image"}}, {"resize": {"field": "image", "size": [8, 8]}})
FLIP = {"random_flip_left_right": {"field": "image"}}


def test_decoded_images_are_kept_small(planned: Plan, caplog: pytest.LogCaptureFixture) -> None:
    arrays = {"arrays": {"image": np.array(slow_images(200), object)}}
    with caplog.at_level(logging.INFO):
        plan = planned(arrays, *DECODE, FLIP)
    assert place(plan) == 2
    assert "behind resize: later epochs" in caplog.text
    assert len(caplog.text.splitlines()) >= 9  # the table
    assert [ordinal for ordinal, _ in plan.steps] == [2]


def test_slow_reads_are_kept(planned: Plan) -> None:
    plan = planned(
        {"python": SlowReads(), "identity": "x"}, {"cast": {"field": "x", "dtype": "int32"}}
    )
    assert place(plan) is not None


def test_rows_in_memory_need_no_cache(planned: Plan) -> None:
    assert (
        place(planned({"arrays": {"image": np.zeros((80, 128, 128, 3), np.uint8)}}, FLIP)) is None
    )


def test_bad_samples_are_left_out_of_the_measurement(planned: Plan) -> None:
    images = np.array(slow_images(200), object)
    images[::7] = b"no image"
    assert place(planned({"arrays": {"image": images}}, *DECODE)) == 2
    images[:] = b"no image"
    with pytest.raises(ConfigError, match=r"cache: cannot measure 64 samples"):
        planned({"arrays": {"image": images}}, *DECODE)


def test_cache_of_the_pipeline_changes_no_fingerprint(tmp_path: Path) -> None:
    images = {"arrays": {"image": np.array(slow_images(200), object)}}
    content = {"source": images, "transforms": [*DECODE, FLIP], "batch": {"size": 8}}

    def plan(**options: Any) -> IndexedPlan:
        definition = parse({**content, **options})
        return plan_indexed("p", definition, open_source(definition.source), choose=choose)

    cached = plan(cache={"store": "auto", "path": str(tmp_path)})
    assert place(cached) == 2
    assert cached.spec.fingerprint == plan().spec.fingerprint
    assert [ordinal for ordinal, _ in cached.steps] == [2]
    with pytest.raises(ConfigError, match=r"cache: there is one in the list too: transforms\[0\]"):
        plan(cache="auto", transforms=["cache", *DECODE])
    with pytest.raises(ConfigError, match=r"cache: it is auto, or .* put a cache with store: disk"):
        plan(cache="disk")
    with pytest.raises(ConfigError, match=r"transforms\[2\].cache: store: auto also chooses"):
        plan(transforms=[*DECODE, {"cache": "auto"}])
    with pytest.raises(ConfigError, match=r"cache: should be auto, or a mapping .*, not True"):
        plan(cache=True)


def test_folder_that_cannot_be_written_is_refused(planned: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    arrays = {"arrays": {"image": np.zeros((80, 4, 4, 3), np.uint8)}}
    with pytest.raises(ConfigError, match="give a path that can be written"):
        planned(arrays, FLIP, path=str(tmp_path / "file"))


def test_memory_has_room_for_a_part_of_the_data(
    planned: Plan, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "memory_bytes", lambda: 1 << 20)  # 80 images of 120 kB
    arrays = {"arrays": {"image": np.array(slow_images(200), object)}}
    with caplog.at_level(logging.INFO):
        planned(arrays, DECODE[0], {"resize": {"field": "image", "size": [200, 200]}}, FLIP)
    assert "cache in disk behind" in caplog.text


@pytest.mark.parametrize(
    ("last", "is_sent"), [("normalize", True), ("random_flip_left_right", False)]
)
def test_samples_that_do_not_fit_cost_what_making_them_does(
    planned: Plan, monkeypatch: pytest.MonkeyPatch, last: str, is_sent: bool
) -> None:
    tables: list[Any] = []
    monkeypatch.setattr(cache_choice, "pick", lambda table: tables.append(table) or table[0])
    monkeypatch.setattr(cgroup, "memory_bytes", lambda: 2)  # so that none fits
    options = {"field": "image", "mean": 0, "std": 1} if is_sent else {"field": "image"}
    arrays = {"arrays": {"image": np.array(slow_images(100), object)}}
    planned(arrays, *DECODE, {last: options})
    none = tables[0][0]
    behind = next(one for one in tables[0] if one.position == 2 and one.store == "memory")
    assert behind.later == pytest.approx(behind.first if is_sent else none.later, rel=1e-3)


def test_full_disk_is_left_out_and_the_half_of_one_is_taken(
    planned: Plan, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = {"arrays": {"image": np.array(slow_images(200), object)}}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    plan = planned(arrays, *DECODE, FLIP)
    assert place(plan) == 2
    assert "is full" in caplog.text
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    one = SimpleNamespace(bytes=2 << 20)  # as a server before has left it
    monkeypatch.setattr(cache_choice, "list_directories", lambda _: [one])
    monkeypatch.setattr(cache_choice, "pick", lambda table: table[2])
    assert planned(arrays, *DECODE).cache._store._budget == 3 << 19


def test_cache_does_not_separate_a_crop_from_its_decoding() -> None:
    # Only the window of a JPEG is decoded, whose outermost columns may have other values.
    asked: list[Any] = []

    def ask(*arguments: Any) -> CacheChoice:
        asked.extend(step.display_name for _, step in arguments[3])
        return CacheChoice(0, "none", 0)

    decode = {"decode_image": {"field": "image", "channels": 3}}
    crop = {"random_crop": {"field": "image", "size": [8, 8]}}
    source = {"arrays": {"image": np.array(slow_images(16), object)}}
    definition = parse(
        {"source": source, "transforms": [decode, crop], "batch": 8, "cache": "auto"}
    )
    plan_indexed("p", definition, open_source(definition.source), choose=ask)
    assert asked == ["decode_image+random_crop"]


def test_random_function_in_python_is_not_cached(tmp_path: Path) -> None:
    def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"x": sample["x"] + rng.integers(100)}

    content = {
        "source": {"arrays": {"x": np.zeros((9, 4), int)}},
        "transforms": [{"map": {"function": noisy, "python": True}}],
        "batch": {"size": 1},
        "cache": {"store": "auto", "path": str(tmp_path)},
    }
    definition = parse(content)
    plan = plan_indexed("p", definition, open_source(definition.source), choose=choose)
    assert place(plan) is None
    plan.source.close()


def test_data_set_of_one_sample_is_measured(tmp_path: Path) -> None:
    content = {
        "source": {"arrays": {"x": np.zeros((1, 4))}},
        "batch": {"size": 1},
        "cache": {"store": "auto", "path": str(tmp_path)},
    }
    definition = parse(content)
    plan = plan_indexed("p", definition, open_source(definition.source), choose=choose)
    assert plan.spec.sample_count == 1
