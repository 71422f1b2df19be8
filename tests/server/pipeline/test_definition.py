"""Tests of `pipeline/definition.py`: added, removed and skipped samples, and the stable order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import ConfigError
from infeed_server.pipeline import indexed_plan
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import from_yaml, parse

ARRAYS: dict[str, Any] = {"arrays": {"x": np.arange(100)}}


def plan_of(**options: Any) -> IndexedPlan:
    definition = parse({"source": ARRAYS, "batch": 4, **options})
    return plan_indexed("numbers", definition, definition.open())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"add": ARRAYS}, "add: should be a valid list"),
        ({"add": [{"dataset": "a:b"}]}, "add[0]: should be a source with samples by index"),
        ({"add": [{"arays": "x"}]}, "add[0]: unknown key 'arays' (did you mean 'arrays'?)"),
        ({"remove": [-1]}, "remove[0]: should be greater than or equal to 0, not -1"),
        ({"remove": 3}, "remove: should be a path, or a list of samples such as [48120, cat/7.jpg"),
        ({"remove": {"ids": [1]}}, "remove.ids: unknown key 'ids'"),
        ({"remove": {"samples": [1], "then": "hide"}}, "remove.then: should be 'substitute' or"),
        ({"skip": [3, 4]}, "skip[0]: should be a range of steps such as [48000, 48100], not 3"),
        ({"skip": [[3]]}, "skip[0]: should be a range of steps such as"),
        ({"skip": [[3, 3]]}, "[first, end] in order and without overlap; [3, 3] is empty"),
        ({"skip": [[3, 5], [4, 6]]}, "[4, 6] begins before 5"),
        ({"skip": [[7, 8], [3, 5]]}, "[3, 5] begins before 8"),
        ({"skip": [[-1, 2]]}, "skip[0][0]: should be greater than or equal to 0, not -1"),
        ({"skip": [[2 * i, 2 * i + 1] for i in range(256)]}, "skip: should be at most 255 ranges"),
        ({"shuffle": {"mode": "stable"}}, "shuffle.mode: should be 'global', 'window' or 'none'"),
        ({"shuffle": {"mode": "window", "order": "stable"}}, "shuffle.order: should be left"),
        ({"shuffle": {"mode": "none", "order": "stable"}}, "should be left out with mode: none"),
    ],
    ids=str,
)  # fmt: skip
def test_an_invalid_option_is_named(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse({"source": ARRAYS, "batch": 4, **options})
    assert problem in raised.value.message


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(9))
    (tmp_path / "gone.txt").write_text("3\n10\n")
    (tmp_path / "p.yaml").write_text(
        "pipelines:\n  one:\n    source: {arrays: a.npz}\n    add: [{arrays: a.npz}]\n"
        "    remove: gone.txt\n    skip: [[1, 2], [2, 3]]\n    batch: 2\n"
    )
    definition = from_yaml(str(tmp_path / "p.yaml"))["one"]
    plan = plan_indexed("one", definition, definition.open())
    assert len(plan.source) == plan.spec.sample_count == 18
    assert plan.removed == (3, 10)


def test_a_stable_order_of_too_many_samples_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed_plan, "MAX_STABLE", 99)
    with pytest.raises(ConfigError, match=r"^shuffle\.order: stable takes 16 bytes .* has 100"):
        plan_of(shuffle={"order": "stable"})


def test_batches_must_fit_into_a_shorter_epoch() -> None:
    shrunk = {"samples": [*range(97)], "then": "shrink"}
    with pytest.raises(ConfigError, match=r"^batch\.size: 4 is larger .* has 3 samples"):
        plan_of(remove=shrunk)
    assert plan_of(remove=shrunk, batch=3).spec.sample_count == 3


def test_skipped_steps_are_segments_of_the_run() -> None:
    plan = plan_of(skip=[[2, 5], [5, 6], [24, 26]], shuffle={"seed": 3})
    plain = plan_of(shuffle={"seed": 3})
    assert [(one.step, one.start, one.epoch, one.offset) for one in plan.spec.lineage] == [
        (0, 0, 0, 0), (2, 8, 0, 20), (2, 8, 0, 24), (20, 80, 1, 4),
    ]  # fmt: skip
    kept = [step for step in range(50) if step not in (2, 3, 4, 5, 24, 25)]
    for seed in (3, 4):
        expected = [plain.order(seed).slots(step * 4, 4) for step in kept]
        found = plan.order(seed).slots(0, 4 * len(kept))
        assert found.index.tolist() == np.concatenate([one.index for one in expected]).tolist()
        assert found.key.tolist() == np.concatenate([one.key for one in expected]).tolist()
    lineage = plan.spec.lineage
    slots = plan.order(3, lineage).slots(70, 30)
    assert slots.index.tolist() == plan.order(3).slots(70, 30).index.tolist()


def test_only_runs_that_differ_from_the_plain_order_have_segments() -> None:
    assert plan_of().spec.lineage == plan_of(remove=[]).spec.lineage == ()
    (segment,) = plan_of(remove={"samples": [5, 2], "then": "shrink"}).spec.lineage
    assert (segment.sample_count, segment.removed, segment.shrinks) == (100, 2, True)
