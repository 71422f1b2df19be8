"""Order of a mixture: the sample, its turn and its key at each position, and the inverse.

A position has a number in the mixture's schedule, and so a part and a draw. The parts are permuted
within blocks, so that each of several ranks sees all of them; the draws of a part keep their order.
A block never reaches into another epoch, so an epoch has its exact share of each part.
Draw n of a part of N samples is the sample n % N of the part's own order in its epoch n // N. That
order and the keys come from the run's seed and the part's name, so no other part changes them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from infeed.shared.errors import InvalidRequestError, SampleError
from infeed_mixtures.mixture import Mixture
from infeed_mixtures.permuted import images
from infeed_server.order import SampleOrder
from infeed_server.order.hashing import combine
from infeed_server.order.permutation import Positions
from infeed_server.order.sample_order import KEY_DOMAIN, to_key

MIX_DOMAIN = 16
"""Hash domain of blocks and of the seeds of parts."""


@dataclass(frozen=True, kw_only=True)
class MixedOrder(SampleOrder):
    """The order of a mixture. `count` are the positions of an epoch. `sizes` are the samples of
    each part, numbered part by part; a part begins again when all of its samples had their
    turn. With `restarts`, all parts begin again with each epoch."""

    mixture: Mixture
    sizes: tuple[int, ...]
    restarts: bool = False
    max_epochs: tuple[int, ...] = ()
    """Epochs that each part may have at most; empty: any number."""

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
            raise ValueError(f"its epoch has {self.count} positions; give epoch: {last.count}")
        stages = len(last.mixture.begins)
        later = self.mixture.begins[stages:]
        if self.mixture.first_stages(stages).digest != last.mixture.digest or start > min(
            later, default=start
        ):
            raise ValueError(
                "its weights, block or parts differ from the run's so far; leave them as they "
                f"were, and give new weights as a stage from position {start} or later"
            )

    def named(self, name: str) -> SampleOrder:
        for stages in range(1, len(self.mixture.begins) + 1):
            order = replace(self, mixture=self.mixture.first_stages(stages))
            if order.name == name:
                return order
        raise ValueError(
            f"a segment has the mixture {name!r}, and the definition has none that begins so: give "
            "new weights as one more stage behind those there are"
        )

    def visited(self, positions: Positions) -> tuple[Positions, Positions]:
        index, turns = np.empty_like(positions), np.empty_like(positions)
        epochs = positions // self.count
        numbers = positions - epochs * self.count + self._first(epochs)
        blocks = numbers // self.mixture.block
        for epoch, block in sorted({*zip(epochs.tolist(), blocks.tolist(), strict=True)}):
            inside = (epochs == epoch) & (blocks == block)
            samples, found = _block_samples(self, epoch, block)
            offsets = numbers[inside] - self._within(epoch, block)[0]
            index[inside], turns[inside] = samples[offsets], found[offsets]
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
                f"{turns[first] + 1} at position {start + first}, and its max_epochs is "
                f"{self.max_epochs[parts[first]]}; end the run before, raise it, or lower the "
                "weight"
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
        seeds = np.array([order.seed for order in self.orders])[parts]
        return to_key(combine(seeds, KEY_DOMAIN, turns, index - self.begins[parts]))

    def without(self, bad: Positions) -> SampleOrder:
        order = super().without(bad)
        gone = np.bincount(self.parts_of(order.removed.bad), minlength=len(self.sizes))
        most = int(np.argmax(2 * gone - self.sizes))
        if 2 * gone[most] > self.sizes[most]:
            raise SampleError(
                f"{gone[most]} of the {self.sizes[most]} samples of part "
                f"{self.mixture.names[most]!r} are bad, too many to follow their substitutes; "
                "repair the files, or see the quarantine log"
            )
        return order

    def parts_of(self, index: Positions) -> Positions:
        """Returns the number of the part of each sample."""
        return np.searchsorted(self.begins, index, side="right").astype(np.int64) - 1

    @cached_property
    def begins(self) -> Positions:
        """The first sample of each part, then the number of all samples."""
        return np.cumsum([0, *self.sizes], dtype=np.int64)

    @cached_property
    def orders(self) -> tuple[SampleOrder, ...]:
        """The own order of each part."""
        return tuple(
            SampleOrder(size, _part_seed(self.seed, name), self.mode, self.block, self.window)
            for name, size in zip(self.mixture.names, self.sizes, strict=True)
        )

    def block_turns(self, epoch: int, block: int) -> tuple[Positions, Positions]:
        """Returns the part and the draw at each position of a block in an epoch."""
        numbers = np.arange(*self._within(epoch, block))
        parts, draws = self.mixture.at(numbers)
        hashes = combine(self.seed, MIX_DOMAIN, epoch, block, np.arange(len(numbers)))
        permuted, kept = parts[np.argsort(hashes, kind="stable")], np.empty_like(draws)
        kept[np.argsort(permuted, kind="stable")] = draws[np.argsort(parts, kind="stable")]
        return permuted, kept

    def _first(self, epoch: Any) -> Any:
        """Returns the first number in the schedule of an epoch."""
        return epoch * self.count * (not self.restarts)

    def _within(self, epoch: int, block: int) -> tuple[int, int]:
        """Returns the first number of a block in an epoch, and the one behind its last: a block in
        which an epoch ends is two, so that an epoch has the turns of its own numbers."""
        first, begin = self._first(epoch), block * self.mixture.block
        return max(begin, first), min(begin + self.mixture.block, first + self.count)

    def _peers(self, index: Positions) -> tuple[Any, Any]:
        parts = self.parts_of(index)
        return self.begins[parts], np.array(self.sizes)[parts]

    def _visits_of(
        self, part: int, epoch: int, index: Positions
    ) -> tuple[Positions, Positions, Positions]:
        """Returns what `visits` does, of samples of one part."""
        size, first, before = self.sizes[part], self._first(epoch), epoch * self.restarts
        begin, end = (int(self.mixture.counts(n)[part]) for n in (first, first + self.count))
        turns, local = range(begin // size, -(-end // size)), index - self.begins[part]
        drawn = [self.orders[part].offsets(turn + before, local) + turn * size for turn in turns]
        draws = np.concatenate([*drawn, local[:0]])
        is_here = (begin <= draws) & (draws < end)
        ids, turn_of = np.tile(index, len(turns)), np.repeat(np.array(turns, np.int64), len(index))
        draws = draws[is_here]
        blocks, offsets = self.mixture.numbers(part, draws) // self.mixture.block, draws.copy()
        for block in np.unique(blocks).tolist():
            parts, own = self.block_turns(epoch, block)
            places, inside = np.flatnonzero(parts == part), blocks == block
            place = places[draws[inside] - own[places[0]]]
            offsets[inside] = place + self._within(epoch, block)[0] - first
        return offsets, ids[is_here], turn_of[is_here] + before


@lru_cache(maxsize=256)
def _block_samples(order: MixedOrder, epoch: int, block: int) -> tuple[Positions, Positions]:
    """Returns the samples and their turns at the positions of a block: 16 bytes a position."""
    parts, draws = order.block_turns(epoch, block)
    turns, places = np.divmod(draws, np.array(order.sizes)[parts])
    turns += epoch * order.restarts
    pairs, which = np.unique(np.stack([parts, turns]), axis=1, return_inverse=True)
    index = order.begins[parts] + _permuted(order, pairs.T, which.reshape(-1), places)
    return index, turns


def _permuted(
    order: MixedOrder, pairs: Positions, which: Positions, places: Positions
) -> Positions:
    """Returns the samples of parts at places; `pairs` are part and turn, and `which` has the pair
    of each place."""
    if order.mode == "global":
        own = [order.orders[part] for part in pairs[:, 0].tolist()]
        keys = np.stack([np.array([one.seed for one in own]), pairs[:, 1]], axis=1)
        return images(places, which, [one.count for one in own], keys)
    result = np.empty_like(places)
    for number, (part, turn) in enumerate(pairs.tolist()):
        inside = which == number
        result[inside] = order.orders[part].samples(turn, places[inside])
    return result


def _part_seed(seed: int, name: str) -> int:
    """Returns the seed of a part's order and keys."""
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)
    return int(combine(seed, MIX_DOMAIN, word)[0]) >> 1
