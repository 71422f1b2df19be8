"""Tests of `change/amend.py`: random histories against a model in plain Python, and refusals."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.course import Course
from infeed.cursor import Cursor
from infeed.shared.errors import InfeedError
from infeed_runs.change.definitions import Definitions
from infeed_server import AmendOptions, amend
from infeed_server.order import RunOrder
from infeed_server.pipeline.load import parse

SIZES = (40, 9, 1, 23, 70)
"""Samples of the sources."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("amend")
    for number, size in enumerate(SIZES):
        np.savez(path / f"{number}.npz", x=np.arange(size) + 1000 * number)
    return path


def definition(folder: Path, **options: Any) -> Any:
    values: dict[str, Any] = {"source": {"arrays": "0.npz"}, "batch": {"size": 4}}
    return {"p": parse({**values, "shuffle": {"seed": 3}, **options}).resolve(folder)}


def cursor(pipelines: Any, position: int, seed: int = 3) -> Cursor:
    with Definitions(pipelines) as definitions:
        opened = definitions.open("p")
        sizes = {"batch_size": opened.definition.batch.size, "world_size": 1}
        course = Course(0, 0, sizes["batch_size"])
        return Cursor("p", opened.fingerprint, seed, position, course=course, **sizes)


def order(pipelines: Any, run: Cursor) -> RunOrder:
    """Returns the order that a server of the pipelines has for a run."""
    with Definitions(pipelines) as definitions:
        return definitions.plan(definitions.open("p")).order(run.seed, run.segments)


class Model:
    """What an epoch has left, as sets; the order of the samples is taken from the run's."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.then = rng.choice(["substitute", "shrink"])
        self.added, self.removed = 0, list[int]()
        self.mode = rng.choice([{"mode": "global"}, {"mode": "window", "block": 4, "window": 16}])
        self.count, self.left = SIZES[0], set(range(SIZES[0]))
        self.pipelines = self.define()
        self.run = cursor(self.pipelines, 0)
        self.batch, self.step = 4, 0
        self.order = order(self.pipelines, self.run)

    def define(self) -> Any:
        more: dict[str, Any] = {"shuffle": {"seed": 3, **self.mode}}
        if self.added:
            more["add"] = [{"arrays": f"{n + 1}.npz"} for n in range(self.added)]
        if self.removed:
            more["remove"] = {"samples": list(self.removed), "then": self.then}
        return definition(self.folder, **more)

    def begin_epoch(self) -> None:
        if not self.left:
            gone = set(self.removed) if self.then == "shrink" else set()
            self.left = set(range(self.count)) - gone

    def visit(self, count: int) -> None:
        """Takes the samples at the next positions out of their epochs: removed ones where they have
        substitutes. Fails if an epoch does not have one."""
        slots = self.order.slots(self.run.position, count)
        assert not np.isin(slots.index, self.order.last.removed.ids).any()
        for visited in slots.visited.tolist():
            self.begin_epoch()
            self.left.remove(visited)

    def read(self, steps: int) -> None:
        if steps:
            self.visit(steps * self.batch)
            self.run = replace(self.run, position=self.run.position + steps * self.batch)
            self.step += steps

    def read_to_epoch(self) -> None:
        """Takes steps up to the one in which an epoch begins."""
        self.read(len(self.left) // self.batch)

    def amend(self) -> None:
        skip, seed, size, was = None, None, None, None
        match self.rng.choice(["add", "remove", "seed", "batch", "skip", "order"]):
            case "add" if self.added < len(SIZES) - 1:
                self.added += 1
            case "remove":
                free = [n for n in range(self.count) if n not in self.removed]
                self.removed += self.rng.sample(free, self.rng.randint(1, 1 + len(free) // 4))
            case "seed" | "add":
                seed = self.run.seed + 1
            case "batch":
                size = self.batch = self.batch % 5 + 1
            case "skip":
                skip = (self.step, self.step + self.rng.randint(1, 9))
            case "order":
                is_global = self.mode["mode"] == "global"
                self.mode = {"mode": "none" if is_global else "global"}
                was = self.pipelines
        self.pipelines = self.define()
        options = AmendOptions(batch_size=size, seed=seed, skip=skip)
        made = amend(self.run, self.step, self.pipelines, was=was, options=options)
        start = self.run.position
        if skip:
            self.visit((skip[1] - skip[0]) * self.batch)
        self.count = self.total
        assert made.cursor.position == start
        changed = order(self.pipelines, made.cursor)
        if start:
            before, after = (vars(one.slots(0, start)) for one in (self.order, changed))
            assert all(before[name].tolist() == after[name].tolist() for name in before)
        self.run, self.order = made.cursor, changed

    @property
    def total(self) -> int:
        return sum(SIZES[: self.added + 1])


@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 200), marks=pytest.mark.slow)], ids=str
)
def test_random_histories_lose_and_repeat_no_sample(folder: Path, seeds: range) -> None:
    for seed in seeds:
        model = Model(random.Random(seed), folder)
        for _ in range(model.rng.randint(1, 8)):
            model.read(model.rng.randint(0, 12))
            model.read_to_epoch()
            model.amend()
        model.read(-(-2 * model.count // model.batch))


def test_samples_come_from_the_epoch_on_in_which_they_are_added(folder: Path) -> None:
    """Epochs of 40 samples, in steps of 6: the first one ends within step 6, whose others
    are the next one's first samples."""
    old = definition(folder, batch={"size": 6})
    new = definition(folder, batch={"size": 6}, add=[{"arrays": "1.npz"}])
    plain = order(old, cursor(old, 0)).slots(0, 40).index.tolist()
    slots = order(new, amend(cursor(old, 36), 6, new).cursor).slots(0, 90)
    assert slots.index[:40].tolist() == plain
    assert sorted(slots.index[40:89].tolist()) == [*range(49)]
    assert slots.epoch.tolist() == [0] * 40 + [1] * 49 + [2]


def test_steps_are_skipped_by_the_definition_too(folder: Path) -> None:
    old, new = definition(folder), definition(folder, skip=[[10, 12]])
    by_option = amend(cursor(old, 40), 10, old, options=AmendOptions(skip=(10, 12)))
    plain = order(old, cursor(old, 0)).slots(0, 48).index
    assert by_option.skipped == tuple(sorted(plain[40:].tolist()))
    made = amend(cursor(old, 40), 10, new)
    slots = order(new, made.cursor).slots(0, 80)
    assert slots.index.tolist() == order(old, by_option.cursor).slots(0, 80).index.tolist()
    with pytest.raises(InfeedError, match=r"\[10, 12\] does not begin at step 0.*amend the cursor"):
        amend(cursor(old, 40), 0, new)


@pytest.mark.parametrize("step", [1, 5, 6, 9])
def test_what_keeps_the_order_may_change_within_an_epoch(folder: Path, step: int) -> None:
    """A bad sample ends a run; it goes on where it ended, with `on_error: substitute`."""
    old = definition(folder, batch={"size": 6})
    new = definition(folder, batch={"size": 6}, on_error="substitute")
    plain = order(old, cursor(old, 0)).slots(0, 130)
    made = amend(cursor(old, step * 6), step, new, was=old)
    slots = order(new, made.cursor).slots(0, 130)
    for name in ("index", "epoch", "key"):
        np.testing.assert_array_equal(getattr(slots, name), getattr(plain, name))
    skipping = amend(cursor(old, step * 6), step, old, options=AmendOptions(skip=(step, step + 1)))
    rest = order(old, skipping.cursor).slots(0, 120).index[step * 6 :]
    np.testing.assert_array_equal(rest, plain.index[step * 6 + 6 : 126])


@pytest.mark.parametrize(
    ("step", "nearest"), [(1, "0 or 6"), (5, "0 or 6"), (7, "6 or 13"), (12, "6 or 13")]
)
def test_step_within_an_epoch_is_refused(folder: Path, step: int, nearest: str) -> None:
    """Epochs of 40 samples, in steps of 6."""
    old = definition(folder, batch={"size": 6})
    with pytest.raises(InfeedError, match=rf"step {step} is within epoch.* step {nearest}$"):
        amend(cursor(old, step * 6), step, old, options=AmendOptions(seed=5))


def test_sizes_so_far_are_the_cursors(folder: Path) -> None:
    old = definition(folder)
    run = replace(cursor(old, 80), batch_size=8, world_size=2, course=Course(0, 0, 16))
    made = amend(run, 5, old, options=AmendOptions(seed=5, world_size=1)).cursor
    assert [(one.batch_size, one.world_size) for one in made.segments] == [(8, 2), (8, 1)]
    assert (made.batch_size, made.world_size) == (8, 1)
    assert amend(run, 0, old, options=AmendOptions(seed=5)).cursor.position == 0
    options = AmendOptions(seed=5)
    changed = replace(run, course=Course(2, 24, 16))
    with pytest.raises(InfeedError, match=r"not made steps of 8 samples on 2 ranks since step 2"):
        amend(changed, 5, old, options=options)
    passed = replace(run, course=Course(0, 0, 16, end=40, length=40))
    with pytest.raises(InfeedError, match=r"step 5 is after position 40.*or begin another run"):
        amend(passed, 5, old, options=options)
    with pytest.raises(InfeedError, match=r"add to it: .course"):
        amend(replace(run, course=None), 5, old, options=options)
    with pytest.raises(InfeedError, match=r"does not state the sizes.*add .batch_size"):
        amend(replace(run, world_size=None), 5, old, options=options)
    skips = definition(folder, skip=[[3, 5]])
    run = replace(cursor(skips, 80), world_size=2)
    with pytest.raises(InfeedError, match="skips at position 12, within a step of 4 samples on 2"):
        amend(run, 5, skips, options=options)


def test_text_states_what_changes_and_how_the_epoch_goes_on(folder: Path) -> None:
    old = definition(folder)
    new = definition(
        folder,
        add=[{"arrays": "1.npz"}],
        remove=[7, 42],
        transforms=[{"cast": {"field": "x", "dtype": "float32"}}],
    )
    options = AmendOptions(batch_size=2, seed=5)
    text = amend(cursor(old, 40), 10, new, was=old, options=options).text
    assert [line.replace(str(folder), "") for line in text] == [
        "added samples: with 9 (40: /1.npz, 41: /1.npz, 42: /1.npz, ...)",
        "removed samples: with 2 (7: /0.npz, 42: /1.npz)",
        'transforms[0].cast: with {"dtype": "float32", "field": "x"}; can affect x',
        "seed: 3 -> 5",
        "batch size: 4 -> 2",
        "steps 0 to 9 stay as they were; step 10 begins at position 40",
        "epoch 1 begins here; it ends at 89",
        "later epochs have 49 samples",
    ]


@pytest.mark.parametrize(
    ("old", "new", "step", "options", "message"),
    [
        ({}, {}, 10, {}, "step 10: the definition.*change one"),
        ({}, {}, 11, {"batch_size": 2}, "step 11 .*, which is 10 with 4 samples on 1 ranks.*lost"),
        ({}, {}, 10, {"skip": (9, 11)}, "skip 9:11 does not begin at step 10"),
        ({}, {"source": {"arrays": "1.npz"}}, 10, {}, "source: its files or labels.*in add"),
        ({"add": [{"arrays": "1.npz"}]}, {}, 10, {}, "add: it has 0 sources but the run has 1"),
        (
            {"add": [{"arrays": "1.npz"}]},
            {"add": [{"arrays": "2.npz"}]},
            *(10, {}, r"add\[0\]: its files or labels"),
        ),
        (
            {"remove": [3, 5]},
            {"remove": [3]},
            10,
            {},
            "sample 5 is missing; only append samples",
        ),
        ({"remove": [3, 5]}, {"remove": [5, 3]}, 10, {}, "its order has changed"),
        ({}, {"skip": [[9, 12]]}, 10, {}, r"\[9, 12\] does not begin at step 10"),
        ({}, {"skip": [[10, 11]]}, 10, {"skip": (10, 11)}, "both the definition"),
        ({"skip": [[1, 2]]}, {"skip": [[2, 3]]}, 9, {}, r"\[2, 3\] does not begin at step 9"),
    ],
)
def test_what_cannot_be_exact_is_refused(
    folder: Path, old: Any, new: Any, step: int, options: Any, message: str
) -> None:
    was = definition(folder, **old)
    with pytest.raises(InfeedError, match=message):
        amend(
            cursor(was, 40 if step >= 10 else 36),
            step,
            definition(folder, **new),
            was=was,
            options=AmendOptions(**options),
        )


def test_step_before_the_last_segment_is_refused(folder: Path) -> None:
    old = definition(folder)
    run = amend(cursor(old, 40), 10, old, options=AmendOptions(seed=5)).cursor
    with pytest.raises(InfeedError, match=r"step 9 is before the last segment.*step 10"):
        amend(run, 9, old, options=AmendOptions(seed=6))
    assert len(amend(run, 10, old, options=AmendOptions(seed=6)).cursor.segments) == 3


def test_unknown_fingerprint_names_what_was_looked_at(folder: Path) -> None:
    new = definition(folder, add=[{"arrays": "1.npz"}], remove=[1])
    with pytest.raises(
        InfeedError, match=r"fingerprint ab12; looked at p \(\w+\) and 3 earlier states of it; keep"
    ):
        amend(Cursor("p", "ab12", 3, 16), 4, new)


def test_sequential_pipeline_is_refused() -> None:
    pipelines = {"p": parse({"source": {"dataset": "x:y"}, "batch": {"size": 4}})}
    with pytest.raises(InfeedError, match=r"pipeline 'p' is sequential.*samples by index"):
        amend(Cursor("p", "ab12", 3, 16), 4, pipelines)
