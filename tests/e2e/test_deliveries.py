"""Tests of the counts of delivered samples."""

from __future__ import annotations

from collections import Counter

from tests.e2e.deliveries import Deliveries, Slot, count

SAMPLES, EPOCHS = 3, 2


def all_slots() -> list[Slot]:
    """Returns every sample of every epoch once: its id, and a key that differs in every epoch."""
    return [(sample, 100 * epoch + sample) for epoch in range(EPOCHS) for sample in range(SAMPLES)]


def test_complete_delivery_has_no_loss_and_no_repeat() -> None:
    assert count(reversed(all_slots()), SAMPLES, EPOCHS) == Deliveries(lost=0, repeated=0)


def test_repeat_does_not_cancel_a_loss_in_another_epoch() -> None:
    delivered = all_slots()
    delivered[delivered.index((1, 101))] = (1, 1)
    per_sample = Counter(sample for sample, _ in delivered)
    assert per_sample == dict.fromkeys(range(SAMPLES), EPOCHS), "the counts per sample are equal"
    assert count(delivered, SAMPLES, EPOCHS) == Deliveries(lost=1, repeated=1)


def test_each_delivery_beyond_the_first_is_a_repeat() -> None:
    assert count([*all_slots(), (0, 0), (0, 0)], SAMPLES, EPOCHS) == Deliveries(lost=0, repeated=2)


def test_unknown_slot_does_not_cancel_a_loss() -> None:
    unknown_id, third_epoch = (SAMPLES, 3), (0, 200)
    delivered = [*all_slots()[1:], unknown_id]
    assert count(delivered, SAMPLES, EPOCHS) == Deliveries(lost=1, repeated=0, unknown=1)
    assert count([*all_slots(), third_epoch], SAMPLES, EPOCHS) == Deliveries(0, 0, unknown=1)
