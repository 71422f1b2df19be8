"""Tests of `infeed what`, `when`, `amend` and `audit` on mixtures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.audit import DeliveryCounter, audit
from infeed.shared.errors import InvalidRequestError
from infeed_runs.change.amend import amend
from infeed_runs.change.diff import diff
from infeed_server.pipeline.load import parse

SIZES = {"web": 40, "books": 60}


def text(folder: Path, options: str, transforms: str = "[]") -> str:
    for number, (name, size) in enumerate(SIZES.items()):
        np.savez(folder / f"{name}.npz", x=np.arange(size) + 1000 * number)
    parts = ", ".join(f"{n}: {{source: {{arrays: {folder}/{n}.npz}}, weight: 1}}" for n in SIZES)
    return f"""
pipelines:
  both:
    source: {{mix: {{{parts}}}, block: 16, {options}}}
    transforms: {transforms}
    shuffle: {{mode: global, seed: 5}}
    batch: 8
"""


def test_what_names_the_part_and_when_finds_each_visit(serve: Any, tmp_path: Path) -> None:
    target = str(serve(text(tmp_path, "epoch: 128")).address)
    with infeed.connect(target, "both", epochs=2) as feed:
        batches = list(feed)
        state = feed.state()
    for slot in infeed.at(state, 17, target):
        batch = batches[17]
        assert slot.sample_id == batch.sample_ids[slot.slot]
        assert slot.fields["part"] == batch.source[slot.slot]
        assert slot.fields["x"] == batch["x"][slot.slot]
    ids = np.concatenate([batch.sample_ids for batch in batches])
    order = serve_order(tmp_path)
    offsets = [order.visits(epoch, np.array([7]))[0] + 128 * epoch for epoch in range(2)]
    assert np.sort(np.concatenate(offsets)).tolist() == np.flatnonzero(ids == 7).tolist()


def serve_order(folder: Path) -> Any:
    arrays = {name: {"x": np.load(folder / f"{name}.npz")["x"]} for name in SIZES}
    mix = {name: {"source": {"arrays": values}} for name, values in arrays.items()}
    source = {"mix": mix, "block": 16, "epoch": 128}
    definition = parse({"source": source, "shuffle": {"mode": "global", "seed": 5}, "batch": 8})
    from infeed_server.pipeline.indexed_plan import sample_order

    return sample_order(definition, definition.open(), ())


def definition(stages: Any = (), weight: Any = 1, **parts: Any) -> Any:
    mix = {
        "web": {"source": {"arrays": {"x": np.arange(40)}}, "weight": weight},
        "books": {"source": {"arrays": {"x": np.arange(1000, 1060)}}},
        **parts,
    }
    source = {"mix": mix, "block": 16, "epoch": 128, "stages": list(stages)}
    return parse({"source": source, "shuffle": {"mode": "global", "seed": 5}, "batch": 8})


def test_a_run_goes_on_with_other_weights(serve: Any) -> None:
    code = {"source": {"arrays": {"x": np.arange(2000, 2020)}}, "weight": 0}
    stage = {"from": 160, "weights": {"web": 1, "books": 1, "code": 2}}
    before, after = definition(), definition([stage], code=code)
    old = serve({"both": before})
    with infeed.connect(str(old.address), "both", epochs=1) as feed:
        seen = [batch["x"] for batch in feed]
        state = feed.state()
    amended = amend(state, 16, {"both": after}, was={"both": before})
    new = serve({"both": after})
    with infeed.connect(str(new.address), "both", epochs=4, state=amended.to_json()) as feed:
        rest = list(feed)
    with infeed.connect(str(new.address), "both", epochs=4) as feed:
        whole = np.concatenate([batch["x"] for batch in feed])
    assert np.array_equal(np.concatenate(seen + [batch["x"] for batch in rest]), whole)
    assert (np.concatenate([batch.source for batch in rest[4:]]) == "code").sum() == 176


def test_a_stage_alone_is_a_change(serve: Any) -> None:
    before, after = definition(), definition([{"from": 160, "weights": {"web": 1, "books": 2}}])
    server = serve({"both": before})
    with infeed.connect(str(server.address), "both", epochs=1) as feed:
        list(feed)
        state = feed.state()
    amended = amend(state, 16, {"both": after}, was={"both": before})
    change = "source.stages.0: with {from: 160, weights: {web: 1, books: 2}}"
    assert [str(one) for one in amended.changes] == [change]


def test_diff_states_other_weights(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("old.yaml", "new.yaml")]
    files[0].write_text(text(tmp_path, "epoch: 128"))
    files[1].write_text(files[0].read_text().replace("weight: 1", "weight: 1/2", 1))
    found = diff(*(f"{file}:both" for file in files))
    assert [str(change) for change in found.changes] == ["source.mix.web.weight: 1 -> 1/2"]
    assert found.samples


def test_weights_of_steps_that_were_taken_stay(serve: Any) -> None:
    before = definition()
    server = serve({"both": before})
    with infeed.connect(str(server.address), "both", epochs=1) as feed:
        list(feed)
        state = feed.state()
    stage = {"from": 64, "weights": {"web": 1, "books": 1}}
    for after in (definition(weight=2), definition([stage])):
        with pytest.raises(InvalidRequestError, match="as a stage from position 128 or later"):
            amend(state, 16, {"both": after}, was={"both": before})


@pytest.mark.parametrize("options", ["epoch: 128", "exhausted: stop"])
def test_an_audit_counts_by_part(serve: Any, tmp_path: Path, options: str) -> None:
    target = str(serve(text(tmp_path, options)).address)
    report = audit(target, "both", epochs=3, world_size=2)
    assert report.exact, report.findings()
    parts = {part.name: part for part in report.outcome.parts}
    assert [part.samples for part in parts.values()] == [40, 60]
    if "stop" not in options:
        assert parts["web"].slots == 192
        assert (parts["web"].least, parts["web"].most) == (4, 5)


def test_an_audit_sees_a_sample_that_comes_too_often(serve: Any, tmp_path: Path) -> None:
    target = str(serve(text(tmp_path, "epoch: 128")).address)
    with infeed.connect(target, "both", epochs=2) as feed:
        counter = DeliveryCounter(feed.spec, epochs=2)
        for batch in feed:
            batch.sample_ids[batch.sample_ids == 3] = 4
            counter.add(batch)
    outcome = counter.outcome()
    assert [part.exact for part in outcome.parts] == [False, True]
    assert not outcome.exact
    assert replace(outcome, parts=()).exact
