"""Differences between two definitions, with the output fields that they can affect."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile

from infeed.shared.spec.segment import Segment
from infeed_runs.change.definitions import Opened
from infeed_runs.change.options import option_changes
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.draws import name_draws
from infeed_server.pipeline.moved_targets import targets_identity
from infeed_server.pipeline.sample_cache import take_cache
from infeed_server.sources.base import Source
from infeed_server.transforms.base import Step, Transform
from infeed_server.transforms.fields import Rename

_SIZES = ("seed", "batch_size", "world_size")

_NAMED = 3
"""Samples named in a text."""


@dataclass(frozen=True)
class Change:
    """A difference: its place in the definition, the old and the new value, empty if absent, and
    the output fields that it can affect."""

    path: str
    old: str
    new: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.old and self.new:
            text = f"{self.path}: {self.old} -> {self.new}"
        else:
            text = f"{self.path}: {f'with {self.new}' if self.new else f'without {self.old}'}"
        return f"{text}; can affect {', '.join(self.fields)}" if self.fields else text


def definition_changes(old: Opened, new: Opened, outputs: Sequence[str] = ()) -> list[Change]:
    """Returns the differences between two definitions with these output fields. They have the
    samples of those sources in common that, counted from the first, have equal identities."""
    changes: list[Change] = []
    common = common_parts(old, new)
    if not common:
        changes.append(Change("source", _source_text(old), _source_text(new)))
    else:
        known = sum(map(len, old.parts[:common]))
        for one, is_new in ((old, False), (new, True)):
            _add_samples(changes, "added samples", one, range(known, len(one.source)), is_new)
        for one, other, is_new in ((old, new, False), (new, old, True)):
            there = set(other.removed)
            gone = [index for index in one.removed if index not in there]
            _add_samples(changes, "removed samples", one, gone, is_new)
    if old.source.arrangement != new.source.arrangement:
        options = option_changes("source", old.definition.source, new.definition.source)
        changes += [Change(*option) for option in options]
    for name, describe in _TEXTS.items():
        was, now = describe(old.definition), describe(new.definition)
        # The samples of a first removal already say what changes.
        if was != now and (name != "remove.then" or (was and now)):
            changes.append(Change(name, was, now))
    before, after = old.definition.transforms, new.definition.transforms
    return changes + transform_changes(before, after, outputs)


def segment_changes(old: Segment, new: Segment) -> list[Change]:
    """Returns the differences between the seeds and sizes of two segments."""
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in _SIZES}
    return [
        Change(name.replace("_", " "), str(a), str(b)) for name, (a, b) in pairs.items() if a != b
    ]


def common_parts(old: Opened, new: Opened) -> int:
    """Returns the number of sources that both have in common, counted from the first."""
    pairs = zip(old.parts, new.parts, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].identity == pair[1].identity, pairs))


def names_of(source: Source, indices: Sequence[int]) -> str:
    """Returns a text with the number of samples and the names of the first few."""
    named = ", ".join(f"{index}: {source.provenance(index)}" for index in indices[:_NAMED])
    return f"{len(indices)} ({named}{', ...' * (len(indices) > _NAMED)})"


def transform_changes(
    old: Sequence[Transform], new: Sequence[Transform], outputs: Sequence[str] = ()
) -> list[Change]:
    """Returns the differences between the transforms of two definitions with these output fields.
    A path counts in the new definition, or in the old one for a transform that is gone."""
    changes: list[Change] = []
    (before, _), (after, _) = (take_cache(name_draws(transforms)) for transforms in (old, new))
    names = [[step.name for _, step in steps] for steps in (before, after)]
    for kind, a, a_end, b, b_end in SequenceMatcher(None, names[0], names[1], False).get_opcodes():
        if kind != "equal":
            gone, added = range(a, a_end), range(b, b_end)
            changes += [_change(before[n:], _options(before[n]), "", outputs) for n in gone]
            changes += [_change(after[n:], "", _options(after[n]), outputs) for n in added]
            continue
        for one, other in zip(range(a, a_end), range(b, b_end), strict=True):
            texts = _options(before[one]), _options(after[other])
            if texts[0] != texts[1]:
                changes.append(_change(after[other:], *texts, outputs))
    return changes


def _add_samples(
    changes: list[Change], path: str, one: Opened, indices: Sequence[int], is_new: bool
) -> None:
    if indices:
        text = names_of(one.source, indices)
        changes.append(Change(path, "" if is_new else text, text if is_new else ""))


def _source_text(one: Opened) -> str:
    kind = one.definition.source.kind
    value = getattr(one.definition.source, kind)
    return f"{kind}: {value}, {len(one.source)} samples, identity {one.source.identity[:12]}"


def _order_text(definition: Pipeline) -> str:
    shuffle = definition.shuffle
    mode = shuffle.order_mode
    return f"{mode} ({shuffle.block}, {shuffle.window})" if mode == "window" else mode


_TEXTS: dict[str, Callable[[Pipeline], str]] = {
    "remove.then": lambda one: one.remove.then if one.remove else "",
    "shuffle": _order_text,
    "skip": lambda one: str([*map(list, one.skip)]) if one.skip else "",
    "on_error": lambda one: one.on_error,
    "targets": lambda one: ", ".join(map(repr, targets_identity(one.targets).items())),
}


def _options(step: Step) -> str:
    _, transform = step
    return json.dumps(transform.identity()[transform.name], sort_keys=True, default=repr)


def _change(steps: Sequence[Step], old: str, new: str, outputs: Sequence[str]) -> Change:
    """Returns the change of the first step; the others follow it."""
    number, transform = steps[0]
    fields = _affected([step for _, step in steps], outputs)
    return Change(f"transforms[{number}].{transform.name}", old, new, fields)


def _affected(steps: Sequence[Transform], outputs: Sequence[str]) -> tuple[str, ...]:
    """Returns the output fields that the first step can affect; the others can rename them."""
    affected: set[str] = set()
    for step in steps:
        fields = step.fields()
        if fields is None:  # a user's function
            return tuple(outputs)
        if step is steps[0]:
            affected |= fields
        elif isinstance(step, Rename):
            affected = {step.names.get(field, field) for field in affected}
    return tuple(field for field in outputs if field in affected)
