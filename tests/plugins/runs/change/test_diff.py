"""Tests of `change/diff.py`, against batches of two orders compared slot by slot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.course import Course
from infeed.cursor import Cursor
from infeed.shared.errors import InfeedError
from infeed_runs.change.definitions import Definitions, split_name
from infeed_runs.change.diff import Difference
from infeed_server import AmendOptions, DiffOptions, amend, diff
from infeed_server.order import RunOrder

BASE = "source: {arrays: 0.npz}, batch: {size: 4}"
CAST = "cast: {field: x, dtype: float32}"
DEFINITIONS = {
    "base": f"{BASE}, shuffle: {{seed: 3}}",
    "same": f"{BASE}, shuffle: {{seed: 3}}",
    "cast": f"{BASE}, shuffle: {{seed: 3}}, transforms: [{CAST}]",
    "removed": f"{BASE}, shuffle: {{seed: 3}}, remove: [5, 17]",
    "shorter": f"{BASE}, shuffle: {{seed: 3}}, remove: {{samples: [5, 17], then: shrink}}",
    "added": f"{BASE}, shuffle: {{seed: 3}}, add: [{{arrays: 1.npz}}]",
    "skips": f"{BASE}, shuffle: {{seed: 3}}, skip: [[2, 4]]",
    "plain": f"{BASE}",
    "copy": "source: {arrays: 1.npz}, batch: {size: 4}, shuffle: {seed: 3}",
}


@pytest.fixture(autouse=True, scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("diff")
    for number in range(2):
        np.savez(folder / f"{number}.npz", x=np.arange(200) + number)
    lines = ["pipelines:", *(f"  {name}: {{{text}}}" for name, text in DEFINITIONS.items())]
    (folder / "p.yaml").write_text("\n".join(lines) + "\n")
    return str(folder / "p.yaml")


def order(file: str, name: str, seed: int = 3) -> RunOrder:
    with Definitions(file) as definitions:
        return definitions.plan(definitions.open(name)).order(seed)


def expected(ours: RunOrder, theirs: RunOrder, begin: int, end: int) -> tuple[int, int]:
    """Returns the positions with other samples, and with other keys."""
    one, other = (order.slots(begin, end - begin) for order in (ours, theirs))
    keys = (one.key != other.key).any(axis=1)
    return int((one.index != other.index).sum()), int(keys.sum())


@pytest.mark.parametrize(
    ("name", "seed", "changes", "reasons"),
    [
        ("base", 4, ["seed"], {"other order", "other draws of the same sample"}),
        ("cast", 3, ["transforms[0].cast"], set()),
        ("removed", 3, ["removed samples"], {"removed sample"}),
        ("shorter", 3, ["removed samples"], {"removed sample"}),
        ("added", 3, ["added samples"], {"other order"}),
        ("skips", 3, ["skip", "segments"], {"other order"}),
        ("plain", 3, ["shuffle"], {"other order"}),
    ],
)
def test_counts_are_those_of_the_slots(
    file: str, name: str, seed: int, changes: list[str], reasons: set[str]
) -> None:
    options = DiffOptions(steps=(0, 40))
    found = diff(f"{file}:base", f"{file}:{name}@{seed}", options=options)
    assert [change.path for change in found.changes] == changes
    assert (found.begin, found.end) == (0, 160)
    numbers = found.samples, found.draws
    assert numbers == expected(order(file, "base"), order(file, name, seed), 0, 160)
    assert set(found.reasons) <= reasons
    assert sum(found.reasons.values()) == found.draws
    assert json.loads(json.dumps(found.to_json()))["samples"] == found.samples


def test_same_definitions_are_identical_under_other_names(file: str) -> None:
    assert diff(f"{file}:base", f"{file}:same") == Difference(identical=True)


def test_functions_of_one_name_beside_two_files_are_two(tmp_path: Path) -> None:
    for folder, factor in (("a", 2), ("b", 3)):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "0.npz", x=np.arange(8))
        (tmp_path / folder / "own.py").write_text(f"def f(s): return {{'x': s['x'] * {factor}}}\n")
        text = "source: {arrays: 0.npz}, batch: {size: 4}, transforms: [map: own:f]"
        (tmp_path / folder / "p.yaml").write_text(f"pipelines: {{p: {{{text}}}}}\n")
    files = [str(tmp_path / folder / "p.yaml") for folder in "ab"]
    for one, other in (files, reversed(files)):
        (change,) = diff(one, other).changes
        assert (change.path, change.fields) == ("transforms[0].map", ("x",))
    with Definitions(files[0]) as definitions:
        fingerprint = definitions.open("p").fingerprint
    run = Cursor("p", fingerprint, 0, 8, batch_size=4, world_size=1, course=Course(0, 0, 4))
    made = amend(run, 2, files[1], was=files[0])
    assert [one.path for one in made.changes] == ["transforms[0].map"]


def test_slot_has_its_place_its_samples_and_the_reason(file: str) -> None:
    found = diff(f"{file}:base", f"{file}:removed", options=DiffOptions(world_size=2))
    slots = order(file, "base").slots(0, 200).index.tolist()
    assert sorted(slots.index(sample) for sample in (5, 17)) == [s.position for s in found.first]
    for one in found.first:
        assert (one.step * 2 + one.rank) * 4 + one.slot == one.position
        assert one.samples[0] in (5, 17)
        assert one.reason == "substitute of a removed sample in the second"


def test_amended_run_differs_from_its_segment_on(file: str) -> None:
    with Definitions(file) as definitions:
        fingerprint = definitions.open("base").fingerprint
    run = Cursor("base", fingerprint, 3, 200, batch_size=4, world_size=1, course=Course(0, 0, 4))
    amended = amend(run, 50, f"{file}:base", options=AmendOptions(seed=9)).cursor
    found = diff(run, amended, [file])
    assert (found.begin, found.end) == (200, 400)
    assert found.draws == 200
    assert [change.path for change in found.changes] == ["seed", "segments"]
    assert diff(run, amended, [file], DiffOptions(steps=(0, 50))).draws == 0
    assert diff(run, f"{file}:base").identical


def test_other_sources_are_compared_by_file_if_they_are_small(file: str) -> None:
    found = diff(f"{file}:base", f"{file}:copy")
    assert found.changes[0].path == "source"
    assert (found.compared, found.samples, found.draws) == (
        "samples by file below the common folder, and their place in it",
        200,
        0,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b.yaml", ("a/b.yaml", None, None)),
        ("b.yaml:p@7", ("b.yaml", "p", 7)),
        ("b@2.yaml@7", ("b@2.yaml", None, 7)),
        ("pkg.mod:attr", ("pkg.mod:attr", None, None)),
        ("pkg.mod:attr:p@0", ("pkg.mod:attr", "p", 0)),
    ],
)
def test_name_of_a_definition_is_split(text: str, expected: Any) -> None:
    assert split_name(text) == expected


def test_unknown_pipeline_is_named(file: str) -> None:
    with pytest.raises(InfeedError, match="no pipeline 'q'; name one of them: base, same"):
        diff(f"{file}:q", f"{file}:base")
    with pytest.raises(InfeedError, match="several pipelines; name one"):
        diff(file, file)


def test_run_file_needs_its_definition(tmp_path: Path, file: str) -> None:
    run = tmp_path / "run.json"
    run.write_text(json.dumps(Cursor("old", "ab12", 3, 80).to_json()))
    with pytest.raises(InfeedError, match=r"fingerprint ab12.*as --pipelines"):
        diff(str(run), str(run), [file])
