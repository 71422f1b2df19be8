"""Order of a mixture: the sample, its turn and its key at each position, and the inverse.

A position has a number in the mixture's schedule, which gives its part and draw. The parts are
permuted within blocks, so that every rank sees all of them; the draws of a part keep their order.
A block never reaches into another epoch, so an epoch has its exact share of each part. Draw n of a
part with N samples is sample n % N of the part's own order in its epoch n // N. That order and the
keys come from the run's seed and the part's name, so no other part changes them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from infeed.shared.errors import InvalidRequestError, SampleError
from infeed_mixtures.mixture import Mixture
from infeed_mixtures.permuted import by_group, images
from infeed_server.order import SampleOrder
from infeed_server.order.hashing import combine
from infeed_server.order.permutation import Positions
from infeed_server.order.sample_order import KEY_DOMAIN, to_key

MIX_DOMAIN = 16
"""Hash domain of blocks and of the seeds of parts."""

_AT_ONCE = 4096
"""Minimum of positions computed at once; NumPy takes as long for a shorter block or epoch."""


@dataclass(frozen=True, kw_only=True)
class MixedOrder(SampleOrder):
    """The order of a mixture. `count` is the number of positions in an epoch, `sizes` the number of
    samples of each part; samples are numbered part by part. A part begins again after all its
    samples had their turn; with `restarts`, all parts begin again at each epoch."""

    mixture: Mixture
    sizes: tuple[int, ...]
    restarts: bool = False
    max_epochs: tuple[int, ...] = ()
    """Maximum epochs of each part; empty for no limit."""

    def __hash__(self) -> int:
        return hash((self.seed, self.count))  # hashing all weights would slow down each batch

    @property
    def length(self) -> int:
        return self.count

    @property
    def name(self) -> str:
        stages = len(self.mixture.begins)
        return f"mix:{stages}:{self.mixture.digest}:{super().name}"

    def check_behind(self, last: SampleOrder, start: int) -> None:
        super().check_behind(last, start)
        assert isinstance(last, MixedOrder)
        if self.count != last.count:
            raise ValueError(f"its epoch has {self.count} positions; set epoch: {last.count}")
        stages = len(last.mixture.begins)
        later = self.mixture.begins[stages:]
        if self.mixture.first_stages(stages).digest != last.mixture.digest or start > min(
            later, default=start
        ):
            raise ValueError(
                "its weights, block or parts differ from the run's; leave them as they were, and "
                f"give new weights as a stage from position {start} or later"
            )

    def named(self, name: str) -> SampleOrder:
        for stages in range(1, len(self.mixture.begins) + 1):
            order = replace(self, mixture=self.mixture.first_stages(stages))
            if order.name == name:
                return order
        raise ValueError(
            f"a segment has the mixture {name!r}, but the definition's mixture does not begin with "
            "it; append new weights as another stage"
        )

    def visited(self, positions: Positions) -> tuple[Positions, Positions]:
        index, turns = np.empty_like(positions), np.empty_like(positions)
        begins = positions - positions % self.span % self.page
        places = np.argsort(begins, kind="stable")
        cuts = np.flatnonzero(np.diff(begins[places])) + 1
        for some in np.split(places, cuts) if places.size else ():
            begin = int(begins[some[0]])
            samples, found = _page_samples(self, begin)
            offsets = positions[some] - begin
            index[some], turns[some] = samples[offsets], found[offsets]
        return index, turns

    def require(self, start: int, count: int) -> None:
        if not self.max_epochs:
            return
        index, turns = self.visited(np.arange(start, start + count))
        parts = self.parts_of(index)
        beyond = np.flatnonzero(turns >= np.array(self.max_epochs)[parts])
        if beyond.size:
            first = beyond[0]
            raise InvalidRequestError(
                f"part {self.mixture.names[parts[first]]!r} would begin its epoch "
                f"{turns[first] + 1} at position {start + first}, but its max_epochs is "
                f"{self.max_epochs[parts[first]]}; end the run earlier, raise max_epochs, or lower "
                "the weight"
            )

    def visits(self, epoch: int, index: Positions) -> tuple[Positions, Positions, Positions]:
        index = index[index < self.begins[-1]]
        parts = self.parts_of(index)
        found = [
            self._visits_of(part, epoch, index[parts == part]) for part in np.unique(parts).tolist()
        ]
        columns = zip(*found, strict=True) if found else [[index[:0]]] * 3
        offsets, ids, turns = (np.concatenate(list(column)) for column in columns)
        return offsets, ids, turns

    def keys(self, turns: Positions, index: Positions) -> Any:
        parts = self.parts_of(index)
        return to_key(combine(self.seeds[parts], KEY_DOMAIN, turns, index - self.begins[parts]))

    def without(self, bad: Positions) -> SampleOrder:
        order = super().without(bad)
        gone = np.bincount(self.parts_of(order.removed.bad), minlength=len(self.sizes))
        most = int(np.argmax(2 * gone - self.sizes))
        if 2 * gone[most] > self.sizes[most]:
            raise SampleError(
                f"{gone[most]} of the {self.sizes[most]} samples of part "
                f"{self.mixture.names[most]!r} are bad, too many to follow their substitutes; "
                "repair the files listed in the quarantine log"
            )
        return order

    def parts_of(self, index: Positions) -> Positions:
        """Returns the part number of each sample."""
        return np.searchsorted(self.begins, index, side="right").astype(np.int64) - 1

    @cached_property
    def begins(self) -> Positions:
        """The first sample of each part, then the total number of samples."""
        return np.cumsum([0, *self.sizes], dtype=np.int64)

    @cached_property
    def orders(self) -> tuple[SampleOrder, ...]:
        """Each part's own order."""
        return tuple(
            SampleOrder(size, _part_seed(self.seed, name), self.mode, self.block, self.window)
            for name, size in zip(self.mixture.names, self.sizes, strict=True)
        )

    @cached_property
    def seeds(self) -> Positions:
        return np.array([order.seed for order in self.orders])

    def turns_at(self, positions: Positions) -> tuple[Positions, Positions]:
        """Returns the part and the draw at each of consecutive positions, which must begin and end
        with a block. The end of an epoch ends a block, so an epoch has only its own turns."""
        epochs = positions // self.count
        numbers = positions - self.count * epochs * self.restarts
        blocks = numbers // self.mixture.block
        is_first = (np.diff(epochs, prepend=-1) != 0) | (np.diff(blocks, prepend=-1) != 0)
        piece, firsts = np.cumsum(is_first), np.flatnonzero(is_first)
        parts, draws = self.mixture.at(numbers)
        places = np.arange(len(positions)) - firsts[piece - 1]
        hashes = combine(self.seed, MIX_DOMAIN, epochs, blocks, places)
        by_hash = np.argsort(hashes, kind="stable")
        permuted, kept = parts[by_hash[by_group(piece[by_hash])]], np.empty_like(draws)
        first = piece * len(self.sizes)
        kept[by_group(first + permuted)] = draws[by_group(first + parts)]
        return permuted, kept

    @cached_property
    def page(self) -> int:
        """The number of positions in a page, computed at once: whole blocks."""
        return -(-_AT_ONCE // self.mixture.block) * self.mixture.block

    @cached_property
    def span(self) -> int:
        """The number of positions at whose multiples a page begins: whole epochs, if each begins
        with a block."""
        return self.count * max(1, self.page // self.count) if self.restarts else 1 << 62

    def _peers(self, index: Positions) -> tuple[Any, Any]:
        parts = self.parts_of(index)
        return self.begins[parts], np.diff(self.begins)[parts]

    def _visits_of(
        self, part: int, epoch: int, index: Positions
    ) -> tuple[Positions, Positions, Positions]:
        """Returns the result of `visits` for samples of one part."""
        size, before = self.sizes[part], epoch * self.restarts
        first = (epoch - before) * self.count  # of the epoch's numbers
        begin, end = (int(self.mixture.counts(n)[part]) for n in (first, first + self.count))
        turns, local = range(begin // size, -(-end // size)), index - self.begins[part]
        drawn = [self.orders[part].offsets(turn + before, local) + turn * size for turn in turns]
        draws = np.concatenate([*drawn, local[:0]])
        is_here = (begin <= draws) & (draws < end)
        ids, turn_of = np.tile(index, len(turns)), np.repeat(np.array(turns, np.int64), len(index))
        draws = draws[is_here]
        numbers = self.mixture.numbers(part, draws)
        blocks, offsets = numbers // self.mixture.block, draws.copy()
        for block in np.unique(blocks).tolist():
            number = block * self.mixture.block
            ends = max(number, first), min(number + self.mixture.block, first + self.count)
            within = np.arange(*ends) - first
            parts, own = self.turns_at(within + epoch * self.count)
            places, inside = np.flatnonzero(parts == part), blocks == block
            offsets[inside] = within[places[draws[inside] - own[places[0]]]]
        return offsets, ids[is_here], turn_of[is_here] + before


@lru_cache(maxsize=256)
def _page_samples(order: MixedOrder, begin: int) -> tuple[Positions, Positions]:
    """Returns the samples and their turns at the positions of a page, 16 bytes per position."""
    positions = np.arange(begin, min(begin + order.page, (begin // order.span + 1) * order.span))
    parts, draws = order.turns_at(positions)
    turns, places = np.divmod(draws, np.diff(order.begins)[parts])
    turns += positions // order.count * order.restarts
    by_pair = by_group(parts)  # the turns of a part follow each other
    pairs = np.stack([parts, turns], axis=1)[by_pair]
    is_first = np.diff(pairs, axis=0, prepend=-1).any(axis=1)
    which = np.empty_like(by_pair)
    which[by_pair] = np.cumsum(is_first) - 1
    index = order.begins[parts] + _permuted(order, pairs[is_first], which, places)
    return index, turns


def _permuted(
    order: MixedOrder, pairs: Positions, which: Positions, places: Positions
) -> Positions:
    """Returns the samples at places in parts. `pairs` lists parts and turns, and `which` is the
    index of each place's pair."""
    if order.mode == "global":
        parts, turns = pairs.T
        keys = np.stack([order.seeds[parts], turns], axis=1)
        return images(places, which, np.diff(order.begins)[parts], keys)
    result = np.empty_like(places)
    for number, (part, turn) in enumerate(pairs.tolist()):
        inside = which == number
        result[inside] = order.orders[part].samples(turn, places[inside])
    return result


def _part_seed(seed: int, name: str) -> int:
    """Returns the seed for a part's order and keys."""
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)
    return int(combine(seed, MIX_DOMAIN, word)[0]) >> 1
