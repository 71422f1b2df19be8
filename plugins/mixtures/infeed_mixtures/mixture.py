"""Mixture: numbered turns of named parts, by weights that can change at stages."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from infeed_mixtures.schedule import Numbers, Schedule, integer_weights

NEVER = -1
"""The number of a draw that never comes."""


@dataclass(frozen=True)
class Mixture:
    """The turns of named parts. `begins` has the first number of each stage, and `weights` its
    weight for every part; `block` numbers are permuted together."""

    names: tuple[str, ...]
    begins: tuple[int, ...]
    weights: tuple[tuple[Fraction, ...], ...]
    block: int

    def at(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the part that has each number, and the number's place in its turns, from 0."""
        parts, draws = np.empty_like(numbers), np.empty_like(numbers)
        stages = np.searchsorted(self.begins, numbers, side="right") - 1
        for stage in np.unique(stages).tolist():
            inside = stages == stage
            found, drawn = self._schedules[stage].at(numbers[inside] - self.begins[stage])
            parts[inside], draws[inside] = found, drawn + self._before[stage][found]
        return parts, draws

    def numbers(self, part: int, draws: Numbers) -> Numbers:
        """Returns the number of each draw of a part; `NEVER` for a draw that never comes."""
        numbers, before = np.full_like(draws, NEVER), self._before[:, part]
        stages = np.searchsorted(before, draws, side="right") - 1
        for stage in np.unique(stages).tolist():
            if self.weights[stage][part]:
                inside = stages == stage
                drawn, parts = draws[inside] - before[stage], np.full(inside.sum(), part)
                found = self._schedules[stage].numbers(parts, drawn)
                numbers[inside] = found + self.begins[stage]
        return numbers

    def counts(self, end: int) -> Numbers:
        """Returns the number of turns of each part below the number `end`."""
        stage = bisect_right(self.begins, end) - 1
        found: Numbers = self._schedules[stage].counts(end - self.begins[stage])
        before: Numbers = self._before[stage]
        return before + found

    def first_stages(self, count: int) -> Mixture:
        """Returns the mixture with only the first stages."""
        return Mixture(self.names, self.begins[:count], self.weights[:count], self.block)

    @property
    def digest(self) -> str:
        """A hash of everything that determines the turns, which leaves out parts without weight."""
        weights = [
            [f"{name}:{weight}" for name, weight in zip(self.names, stage, strict=True) if weight]
            for stage in self.weights
        ]
        content = repr((self.begins, weights, self.block))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @cached_property
    def _schedules(self) -> Sequence[Schedule]:
        return [Schedule(integer_weights(weights)) for weights in self.weights]

    @cached_property
    def _before(self) -> Numbers:
        """The turns of each part before each stage: [stage, part]."""
        before = np.zeros((len(self.begins), len(self.names)), np.int64)
        for stage, end in enumerate(self.begins[1:]):
            length = end - self.begins[stage]
            before[stage + 1] = before[stage] + self._schedules[stage].counts(length)
        return before
