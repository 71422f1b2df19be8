"""What was delivered, counted: against a naive count of every slot by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.batch import Batch
from infeed.counts import Counts
from infeed.outcome import EpochOutcome, Outcome
from infeed.sightings import EXAMPLES, Repeat, Stranger
from infeed.spec import Guarantee, PipelineSpec

SPEC = PipelineSpec("one", (), (), (), 10, "ab12", Guarantee(), 4, 0, "pad", "raise")


@dataclass(frozen=True)
class Slot:
    """What a batch says of a position; the id is -1 where the slot is empty."""

    position: int
    sample_id: int


def spec_of(**changes: Any) -> PipelineSpec:
    return replace(SPEC, **changes)


def batch_of(start: int, ids: Iterable[int], epoch: int = 0) -> Batch:
    array = np.array(list(ids), np.int64)
    return Batch({}, start=start, epoch=epoch, sample_ids=array, mask=array >= 0)


def stream_of(samples: int, epochs: int, seed: int = 0) -> list[int]:
    """The sample id at each position."""
    rng = np.random.default_rng(seed)
    return [sample for _ in range(epochs) for sample in rng.permutation(samples).tolist()]


def batches_of(stream: list[int], size: int) -> list[Batch]:
    starts = range(0, len(stream), size)
    cuts = [stream[start : start + size] for start in starts]
    return [
        batch_of(start, [*cut, *[-1] * (size - len(cut))])
        for start, cut in zip(starts, cuts, strict=True)
    ]


def outcome_of(spec: PipelineSpec, batches: Iterable[Batch], **options: Any) -> Outcome:
    end = options.pop("end", None)
    counts = Counts(spec, **options)
    for batch in batches:
        counts.add(batch)
    return counts.outcome(end)


# --- any mishap, against the naive count ---


class Naive:
    """Every slot in a list, every question answered by going through it."""

    def __init__(self, spec: PipelineSpec, batches: list[Batch], epochs: int, end: int) -> None:
        self.spec = spec
        self.samples = spec.sample_count or 0
        self.end = end
        self.epochs = epochs
        slots = [
            Slot(batch.start + slot, int(batch.sample_ids[slot]))
            for batch in batches
            for slot in range(batch.slots)
        ]
        total = self.samples * epochs
        self.filled = [slot for slot in slots if slot.sample_id >= 0]
        masks = spec.on_error == "mask"
        self.empty = [
            slot for slot in slots if slot.sample_id < 0 and masks and slot.position < total
        ]
        self.positions = Counter(slot.position for slot in self.filled + self.empty)

    def ids(self, epoch: int) -> Counter[int]:
        return Counter(s.sample_id for s in self.filled if s.position // self.samples == epoch)

    def known(self, epoch: int) -> Counter[int]:
        return Counter({i: n for i, n in self.ids(epoch).items() if i < self.samples})

    def exact(self) -> bool:
        """Every position once, and in each epoch no id twice and none that is not the
        pipeline's: so nothing can be missing either."""
        return self.positions == Counter(range(self.end)) and all(
            self.ids(epoch) == self.known(epoch) and set(self.ids(epoch).values()) <= {1}
            for epoch in range(self.epochs)
        )

    def check(self, found: Outcome) -> None:
        assert found.exact == self.exact()
        assert found.undelivered == len(set(range(self.end)) - set(self.positions))
        assert found.redelivered == sum(self.positions.values()) - len(self.positions)
        assert found.beyond == sum(position >= self.end for position in self.positions)
        for epoch in found.epochs:
            self.check_epoch(epoch)
        assert [epoch.epoch for epoch in found.epochs] == list(range(self.epochs))

    def check_epoch(self, found: EpochOutcome) -> None:
        ids, known = self.ids(found.epoch), self.known(found.epoch)
        unseen = sorted(set(range(self.samples)) - set(known))
        assert found.samples == self.samples
        assert found.once == sum(times == 1 for times in known.values())
        assert found.more == sum(times > 1 for times in known.values())
        assert found.never == len(unseen)
        assert found.surplus == sum(known.values()) - len(known)
        assert found.strangers == sum(ids.values()) - sum(known.values())
        assert found.unseen == tuple(unseen[:EXAMPLES])
        mine = range(found.epoch * self.samples, (found.epoch + 1) * self.samples)
        assert found.left_out == sum(position >= self.end for position in mine)
        assert found.masked == len({s.position for s in self.empty if s.position in mine})
        assert found.lost == max(0, len(unseen) - found.left_out - found.masked)
        for repeat in found.repeats:
            places = [s.position for s in self.filled if s.sample_id == repeat.sample_id]
            assert repeat.again in places
            assert repeat.first is None or repeat.first in places
        assert all(Slot(s.position, s.sample_id) in self.filled for s in found.unknown)


@examples(400)
@given(st.data())
def test_any_mishap_is_counted(data: st.DataObject) -> None:
    samples, epochs = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 3))
    size = data.draw(st.integers(1, 5))
    spec = spec_of(sample_count=samples, on_error=data.draw(st.sampled_from(["raise", "mask"])))
    end = data.draw(st.integers(0, samples * epochs) | st.just(samples * epochs))
    stream = stream_of(samples, epochs)[:end]
    for position in data.draw(st.lists(st.integers(0, max(end - 1, 0)), max_size=3)):
        if stream:  # another sample, one that the pipeline does not have, or none
            stream[position] = data.draw(st.integers(-1, samples))
    batches = batches_of(stream, size)
    kept = data.draw(st.just(range(len(batches))) | st.sets(st.integers(0, len(batches))))
    twice = data.draw(st.lists(st.integers(0, len(batches)), max_size=2))
    batches = [batches[number] for number in [*kept, *twice] if number < len(batches)]
    batches = data.draw(st.permutations(batches) | st.just(batches))
    naive = Naive(spec, batches, epochs, end)
    naive.check(outcome_of(spec, batches, epochs=epochs, end=end))


@examples(150)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 50), st.integers(0, 9))
def test_what_came_whole_is_exact(samples: int, epochs: int, size: int, seed: int) -> None:
    batches = batches_of(stream_of(samples, epochs, seed), size)
    np.random.default_rng(seed).shuffle(batches)
    found = outcome_of(spec_of(sample_count=samples), batches, epochs=epochs)
    assert found.exact
    assert found.end == samples * epochs
    assert [epoch.once for epoch in found.epochs] == [samples] * epochs


# --- substituted samples ---


@examples(150)
@given(st.integers(2, 30), st.integers(1, 3), st.data())
def test_substitutes_are_told_from_losses_by_their_names(
    samples: int, epochs: int, data: st.DataObject
) -> None:
    spec = spec_of(sample_count=samples, on_error="substitute")
    bad = data.draw(st.sets(st.integers(0, samples - 1), max_size=samples - 1))
    end = data.draw(st.integers(1, samples * epochs) | st.just(samples * epochs))
    good = sorted(set(range(samples)) - bad)
    stream = stream_of(samples, epochs)[:end]
    for position, sample in enumerate(stream):
        if sample in bad:
            stream[position] = data.draw(st.sampled_from(good))
    options: dict[str, Any] = {"epochs": epochs, "end": end}
    batches = batches_of(stream, 4)
    found = outcome_of(spec, batches, **options, bad_samples=bad)
    assert found.exact
    whole = [epoch for epoch in found.epochs if not epoch.left_out]
    assert all(epoch.substituted == epoch.surplus == len(bad) for epoch in whole)
    if whole:
        # Who was not told the names can't know, and says so.
        assert outcome_of(spec, batches, **options).exact == (not bad)
        # A good one that another stands in for is lost all the same.
        lost = next((s for s in good if stream[:samples].count(s) == 1), None)
        others = [sample for sample in good if sample != lost]
        if lost is not None and others:
            stream[stream.index(lost)] = others[0]
            found = outcome_of(spec, batches_of(stream, 4), **options, bad_samples=bad)
            assert (found.exact, found.epochs[0].unseen) == (False, (lost,))


def test_bad_samples_explain_nothing_where_nobody_substitutes() -> None:
    stream = stream_of(10, 1)
    stream[stream.index(3)] = 4
    for on_error in ("raise", "mask"):
        spec = spec_of(on_error=on_error)
        assert not outcome_of(spec, batches_of(stream, 4), epochs=1, bad_samples={3}).exact


# --- data sets of unknown length, and of batches ---


@examples(150)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 6), st.data())
def test_ids_that_count_up_tell_where_an_epoch_of_unknown_length_begins(
    lengths: list[int], size: int, data: st.DataObject
) -> None:
    stream = [sample for length in lengths for sample in range(length)]
    epoch_of = [epoch for epoch, length in enumerate(lengths) for _ in range(length)]
    batches = batches_of(stream, size)
    for batch in batches:
        batch.epoch = epoch_of[batch.start]
    batches = data.draw(st.permutations(batches))
    spec = spec_of(sample_count=None)
    found = outcome_of(spec, batches, epochs=len(lengths), end=len(stream))
    assert found.exact
    assert [epoch.once for epoch in found.epochs] == lengths
    if len(batches) > 1:
        assert not outcome_of(spec, batches[1:], epochs=len(lengths), end=len(stream)).exact
        again = outcome_of(spec, [*batches, batches[0]], epochs=len(lengths), end=len(stream))
        assert (again.exact, again.redelivered) == (
            False,
            int(batches[0].mask.sum()),
        )


def test_an_epoch_that_never_came_is_not_exact() -> None:
    batches = batches_of(list(range(8)), 4)
    found = outcome_of(spec_of(sample_count=None), batches, epochs=2)
    assert [epoch.exact for epoch in found.epochs] == [True, False]
    assert not found.exact


@pytest.mark.parametrize("count", [3, None])
def test_a_data_set_of_batches_counts_those(count: int | None) -> None:
    spec = spec_of(sample_count=count, batch_stride=1)
    cuts = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, -1, -1]]
    batches = [
        batch_of(3 * epoch + number, cut, epoch)
        for epoch in range(2)
        for number, cut in enumerate(cuts)
    ]
    found = outcome_of(spec, batches, epochs=2, end=6)
    assert found.exact
    assert [epoch.once for epoch in found.epochs] == [10, 10]
    # The last batch of an epoch is missed although no id above its own says so.
    found = outcome_of(spec, batches[:2] + batches[3:], epochs=2, end=6)
    assert (found.exact, found.gaps) == (False, ((2, 3),))
    found = outcome_of(spec, [*batches, batches[0]], epochs=2, end=6)
    assert (found.exact, found.again) == (False, ((0, 1),))
    # All padding, for a rank that has nothing to do in the last step.
    found = outcome_of(spec, [*batches, batch_of(6, [-1] * 4)], epochs=2, end=6)
    assert found.exact


# --- workers of the data service ---


WORKERS = spec_of(
    sample_count=None, guarantee=Guarantee("none", "at_most_once", "none"), engine="tf_data_service"
)


def test_workers_give_samples_in_any_order_and_the_batch_that_is_not_full_before_others() -> None:
    batches = [batch_of(0, [7, 0, 3, 9]), batch_of(4, [8, 5, -1, -1]), batch_of(8, [2, 1, 4, 6])]
    beyond = batch_of(12, [-1] * 4)  # of a rank that has no share in the last step
    found = outcome_of(WORKERS, [*batches, beyond], epochs=1, end=12)
    assert (found.exact, found.gaps, found.beyond) == (True, (), 0)
    assert [(epoch.samples, epoch.once) for epoch in found.epochs] == [(10, 10)]
    assert outcome_of(WORKERS, [*batches, beyond], epochs=1, end=16).exact

    lost = outcome_of(WORKERS, [batches[0], batches[2]], epochs=1, end=12)
    assert lost.gaps == ((4, 8),)
    assert lost.epochs[0].unseen == (5, 8)
    again = outcome_of(WORKERS, [*batches, batch_of(12, [7, 0, 3, 9])], epochs=1, end=16)
    assert (again.exact, again.epochs[0].surplus) == (False, 4)
    behind = outcome_of(WORKERS, [*batches, batch_of(12, [10, 11, 12, 13])], epochs=1, end=12)
    assert (behind.exact, behind.beyond) == (False, 4)


def test_workers_mask_as_many_samples_as_slots_are_empty() -> None:
    batches = [batch_of(0, [5, -1, 0, 3]), batch_of(4, [-1] * 4), batch_of(8, [2, 9, -1, -1])]
    masking = replace(WORKERS, on_error="mask")
    (epoch,) = outcome_of(masking, batches, epochs=1, end=12).epochs
    assert (epoch.exact, epoch.never, epoch.masked, epoch.lost) == (True, 5, 5, 0)
    batches[2] = batch_of(8, [20, 9, -1, -1])
    (epoch,) = outcome_of(masking, batches, epochs=1, end=12).epochs
    assert (epoch.exact, epoch.never, epoch.masked, epoch.lost) == (False, 16, 7, 9)


def test_a_data_set_of_batches_on_workers() -> None:
    batched = replace(WORKERS, batch_stride=4)
    batches = [batch_of(0, [0, 1, -1, -1]), batch_of(4, [2, 3, 4, 5])]
    assert outcome_of(batched, batches, epochs=1, end=8).exact
    assert outcome_of(batched, batches[:1], epochs=1, end=8).gaps == ((4, 8),)


# --- what is told ---


def test_places_are_told() -> None:
    stream = list(range(10))
    stream[7] = 2
    stream[8] = 10
    (epoch,) = outcome_of(SPEC, batches_of(stream, 4), epochs=1).epochs
    assert epoch.unseen == (7, 8)
    assert epoch.repeats == (Repeat(2, first=2, again=7),)
    assert epoch.unknown == (Stranger(10, 8),)
    assert (epoch.once, epoch.more, epoch.never, epoch.lost) == (7, 1, 2, 2)


def test_a_batch_that_comes_again_after_its_epoch_came_whole() -> None:
    batches = batches_of(list(range(10)), 5)
    counts = Counts(SPEC, epochs=1)
    for batch in [*batches, batches[1], batches[1]]:
        counts.add(batch)
    found = counts.outcome()
    assert (found.redelivered, found.again) == (10, ((5, 10), (5, 10)))
    (epoch,) = found.epochs
    assert (epoch.once, epoch.more, epoch.never, epoch.surplus) == (5, 5, 0, 10)
    # Where it was first, an epoch that came whole does not remember.
    assert epoch.repeats[0] == Repeat(5, first=None, again=5)
    assert len(epoch.repeats) == EXAMPLES


def test_an_endless_walk_is_counted_up_to_where_it_came() -> None:
    batches = batches_of(stream_of(10, 3), 4)[:4]
    found = outcome_of(SPEC, batches)
    assert (found.exact, found.end) == (True, 16)
    assert [(epoch.once, epoch.left_out) for epoch in found.epochs] == [(10, 0), (6, 4)]
    masked = outcome_of(spec_of(on_error="mask"), [batch_of(0, [3, -1, 5, 4])])
    assert (masked.exact, masked.epochs[0].masked) == (True, 1)


def test_whole_epochs_take_little_memory() -> None:
    counts = Counts(spec_of(sample_count=100_000), epochs=50)
    held = []
    for start in range(0, 2_000_000, 50_000):
        counts.add(batch_of(start, range(start % 100_000, start % 100_000 + 50_000)))
        held.append(sum(s._times.nbytes + s._first.nbytes for s in counts._sightings.values()))
    assert max(held) == 900_000
    assert held[-1] == 0
    assert counts.outcome(2_000_000).exact
