"""The delivery counter, compared with a naive count of every slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.batch import Batch
from infeed.shared.spec import Guarantee, PipelineSpec
from infeed.shared.spec.segment import Segment
from infeed_tools.audit.counter import DeliveryCounter
from infeed_tools.audit.outcome import (
    MAX_EXAMPLES,
    AuditTotals,
    EpochTotals,
)

SPEC = PipelineSpec("one", (), (), (), 10, "ab12", Guarantee(), 4, 0, "pad", "raise")


class Slot(NamedTuple):
    """A slot of a batch; the id is -1 if it is empty."""

    position: int
    sample_id: int


def make_spec(**changes: Any) -> PipelineSpec:
    return replace(SPEC, **changes)


def make_batch(start: int, ids: Iterable[int], epoch: int = 0) -> Batch:
    array = np.array(list(ids), np.int64)
    return Batch({}, start=start, epoch=epoch, sample_ids=array, mask=array >= 0)


def make_stream(samples: int, epochs: int, seed: int = 0) -> list[int]:
    """Returns the sample id at each position."""
    rng = np.random.default_rng(seed)
    return [sample for _ in range(epochs) for sample in rng.permutation(samples).tolist()]


def make_batches(stream: list[int], size: int) -> list[Batch]:
    starts = range(0, len(stream), size)
    parts = [stream[start : start + size] for start in starts]
    return [
        make_batch(start, [*part, *[-1] * (size - len(part))])
        for start, part in zip(starts, parts, strict=True)
    ]


def count_batches(spec: PipelineSpec, batches: Iterable[Batch], **options: Any) -> AuditTotals:
    end = options.pop("end", None)
    counter = DeliveryCounter(spec, **options)
    for batch in batches:
        counter.add(batch)
    return counter.outcome(end)


# --- any fault, compared with the naive count ---


class NaiveCounter:
    """A list of all slots, searched for each total."""

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
        """Returns whether every position occurs once, and no epoch repeats an id or has an
        unknown one; then none can be missing."""
        return self.positions == Counter(range(self.end)) and all(
            self.ids(epoch) == self.known(epoch) and set(self.ids(epoch).values()) <= {1}
            for epoch in range(self.epochs)
        )

    def check(self, totals: AuditTotals) -> None:
        assert totals.exact == self.exact()
        assert totals.undelivered == len(set(range(self.end)) - set(self.positions))
        assert totals.redelivered == sum(self.positions.values()) - len(self.positions)
        assert totals.beyond == sum(position >= self.end for position in self.positions)
        for epoch in totals.epochs:
            self.check_epoch(epoch)
        assert [epoch.epoch for epoch in totals.epochs] == list(range(self.epochs))

    def check_epoch(self, totals: EpochTotals) -> None:
        ids, known = self.ids(totals.epoch), self.known(totals.epoch)
        missing = sorted(set(range(self.samples)) - set(known))
        assert totals.samples == self.samples
        assert totals.once == sum(times == 1 for times in known.values())
        assert totals.more == sum(times > 1 for times in known.values())
        assert totals.never == len(missing)
        assert totals.surplus == sum(known.values()) - len(known)
        assert totals.strangers == sum(ids.values()) - sum(known.values())
        assert totals.unseen == tuple(missing[:MAX_EXAMPLES])
        epoch_positions = range(totals.epoch * self.samples, (totals.epoch + 1) * self.samples)
        assert totals.left_out == sum(position >= self.end for position in epoch_positions)
        assert totals.masked == len({s.position for s in self.empty} & set(epoch_positions))
        assert totals.lost == max(0, len(missing) - totals.left_out - totals.masked)
        for repeat in totals.repeats:
            assert Slot(repeat.position, repeat.sample_id) in self.filled
        assert all(Slot(s.position, s.sample_id) in self.filled for s in totals.unknown)


@examples(400)
@given(st.data())
def test_any_fault_is_counted(data: st.DataObject) -> None:
    samples, epochs = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 3))
    size = data.draw(st.integers(1, 5))
    spec = make_spec(sample_count=samples, on_error=data.draw(st.sampled_from(["raise", "mask"])))
    end = data.draw(st.integers(0, samples * epochs) | st.just(samples * epochs))
    stream = make_stream(samples, epochs)[:end]
    for position in data.draw(st.lists(st.integers(0, max(end - 1, 0)), max_size=3)):
        if stream:  # a wrong sample, an unknown one, or none
            stream[position] = data.draw(st.integers(-1, samples))
    batches = make_batches(stream, size)
    kept = data.draw(st.just(range(len(batches))) | st.sets(st.integers(0, len(batches))))
    repeated = data.draw(st.lists(st.integers(0, len(batches)), max_size=2))
    batches = [batches[index] for index in [*kept, *repeated] if index < len(batches)]
    batches = data.draw(st.permutations(batches) | st.just(batches))
    naive = NaiveCounter(spec, batches, epochs, end)
    naive.check(count_batches(spec, batches, epochs=epochs, end=end))


# --- datasets of unknown length, and of batches ---


@examples(150)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 6), st.data())
def test_sample_0_begins_an_epoch_of_unknown_length(
    lengths: list[int], size: int, data: st.DataObject
) -> None:
    stream = [sample for length in lengths for sample in range(length)]
    epoch_of = [epoch for epoch, length in enumerate(lengths) for _ in range(length)]
    batches = make_batches(stream, size)
    for batch in batches:
        batch.epoch = epoch_of[batch.start]
    batches = data.draw(st.permutations(batches))
    spec = make_spec(sample_count=None)
    totals = count_batches(spec, batches, epochs=len(lengths), end=len(stream))
    assert totals.exact
    assert [epoch.once for epoch in totals.epochs] == lengths
    assert not count_batches(spec, batches, epochs=len(lengths) + 1, end=len(stream)).exact
    if len(batches) > 1:
        assert not count_batches(spec, batches[1:], epochs=len(lengths), end=len(stream)).exact
        again = count_batches(spec, [*batches, batches[0]], epochs=len(lengths), end=len(stream))
        assert (again.exact, again.redelivered) == (False, int(batches[0].mask.sum()))


# --- TensorFlow's data service ---


WORKERS = make_spec(
    sample_count=None, guarantee=Guarantee("none", "at_most_once", "none"), engine="tf_data_service"
)


def test_workers_deliver_the_partial_batch_in_any_order() -> None:
    batches = [
        make_batch(0, [7, 0, 3, 9]),
        make_batch(4, [8, 5, -1, -1]),
        make_batch(8, [2, 1, 4, 6]),
    ]
    padding = make_batch(12, [-1] * 4)  # from a rank without data in the last step
    totals = count_batches(WORKERS, [*batches, padding], epochs=1, end=12)
    assert (totals.exact, totals.gaps, totals.beyond) == (True, (), 0)
    assert [(epoch.samples, epoch.once) for epoch in totals.epochs] == [(10, 10)]
    assert count_batches(WORKERS, [*batches, padding], epochs=1, end=16).exact

    lost = count_batches(WORKERS, [batches[0], batches[2]], epochs=1, end=12)
    assert lost.gaps == ((4, 8),)
    assert lost.epochs[0].unseen == (5, 8)
    again = count_batches(WORKERS, [*batches, make_batch(12, [7, 0, 3, 9])], epochs=1, end=16)
    assert (again.exact, again.epochs[0].surplus) == (False, 4)
    beyond = count_batches(WORKERS, [*batches, make_batch(12, [10, 11, 12, 13])], epochs=1, end=12)
    assert (beyond.exact, beyond.beyond) == (False, 4)


# --- examples and limits ---


def test_an_endless_stream_is_counted_up_to_its_last_position() -> None:
    batches = make_batches(make_stream(10, 3), 4)[:4]
    totals = count_batches(SPEC, batches)
    assert (totals.exact, totals.end) == (True, 16)
    assert [(epoch.once, epoch.left_out) for epoch in totals.epochs] == [(10, 0), (6, 4)]
    masked = count_batches(make_spec(on_error="mask"), [make_batch(0, [3, -1, 5, 4])])
    assert (masked.exact, masked.epochs[0].masked) == (True, 1)


# --- runs with segments ---


def segment(**changes: Any) -> Segment:
    first = Segment(0, 0, "one", "ab12", 0, 4, 1, 0, 0, 10, 10, "global")
    return replace(first, **changes)


def test_removed_samples_have_substitutes() -> None:
    spec = make_spec(lineage=(segment(removed=2),))
    good = make_batches([0, 1, 2, 3, 4, 5, 6, 7, 3, 0, *range(8), 1, 1], 4)
    totals = count_batches(spec, good, epochs=2)
    assert totals.exact
    assert [epoch.substituted for epoch in totals.epochs] == [2, 2]
    wrong = make_batches([0, 1, 2, 3, 4, 5, 6, 6, 3, 0, *range(8), 1, 1], 4)
    assert not count_batches(spec, wrong, epochs=2).exact


def test_shorter_epochs_lack_the_removed_samples() -> None:
    spec = make_spec(sample_count=8, lineage=(segment(removed=2, shrinks=True, epoch_end=8),))
    assert count_batches(spec, make_batches([*range(2, 10)] * 2, 4), epochs=2).exact
    wrong = [*range(2, 10), *range(2, 9), 2]
    assert not count_batches(spec, make_batches(wrong, 4), epochs=2).exact


def test_skipped_steps_shorten_their_epoch_alone() -> None:
    # The offsets 2 to 5 of epoch 1 are skipped.
    jump = segment(step=3, start=12, epoch=1, offset=6, epoch_end=16)
    spec = make_spec(lineage=(segment(), jump))
    stream = [*range(10), 0, 1, 6, 7, 8, 9, *range(10)]
    totals = count_batches(spec, make_batches(stream, 4), epochs=3)
    assert totals.exact
    assert totals.end == 26
    assert [epoch.left_out for epoch in totals.epochs] == [0, 4, 0]
    assert count_batches(spec, make_batches(stream, 4)).exact  # endless, judged up to its end
    assert not count_batches(spec, make_batches([*range(10)] * 3, 4), epochs=3).exact
