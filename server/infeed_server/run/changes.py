"""What differs between two lists of transforms, and the output fields that it can affect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from infeed_server.transforms.base import Transform
from infeed_server.transforms.fields import Rename


@dataclass(frozen=True)
class Change:
    """A difference: its place in the definition, the old and the new value, empty where there is
    none, and the output fields that it can affect."""

    path: str
    old: str
    new: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.old and self.new:
            text = f"{self.path}: {self.old} -> {self.new}"
        else:
            text = f"{self.path}: {f'added {self.new}' if self.new else f'removed {self.old}'}"
        return f"{text}; can affect {', '.join(self.fields)}" if self.fields else text


def transform_changes(
    old: Sequence[Transform], new: Sequence[Transform], outputs: Sequence[str] = ()
) -> list[Change]:
    """Returns the differences between the transforms of two definitions, by their place in the new
    one, or in the old one for those that are removed. `outputs` are the fields of their results."""
    changes: list[Change] = []
    names = [[step.name for step in steps] for steps in (old, new)]
    for kind, a, a_end, b, b_end in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if kind != "equal":
            changes += [_change(old, n, _options(old[n]), "", outputs) for n in range(a, a_end)]
            changes += [_change(new, n, "", _options(new[n]), outputs) for n in range(b, b_end)]
            continue
        for one, other in zip(range(a, a_end), range(b, b_end), strict=True):
            texts = _options(old[one]), _options(new[other])
            if texts[0] == texts[1] and one != other and new[other].random:
                # Its place is part of its key.
                texts = f"draws of place {one}", f"draws of place {other}"
            if texts[0] != texts[1]:
                changes.append(_change(new, other, *texts, outputs))
    return changes


def _options(step: Transform) -> str:
    return json.dumps(step.identity()[step.name], sort_keys=True, default=repr)


def _change(
    steps: Sequence[Transform], number: int, old: str, new: str, outputs: Sequence[str]
) -> Change:
    fields = _affected(steps[number:], outputs)
    return Change(f"transforms[{number}].{steps[number].name}", old, new, fields)


def _affected(steps: Sequence[Transform], outputs: Sequence[str]) -> tuple[str, ...]:
    """Returns the output fields that the first of the steps can affect."""
    affected: set[str] = set()
    for step in steps:
        fields = step.fields()
        if fields is None:  # a function of the user
            return tuple(outputs)
        if step is steps[0]:
            affected |= fields
        elif isinstance(step, Rename):
            affected = {step.names.get(field, field) for field in affected}
    return tuple(field for field in outputs if field in affected)
