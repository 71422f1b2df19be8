"""The budget: two batches for everybody, more while there is room, never more than there is."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed_server.engines import budget as module
from infeed_server.engines import host
from infeed_server.engines.budget import FEWEST, MOST, STREAM_BYTES, Account, Budget

LARGE = 1 << 50


def account(budget: Budget, size: int = 0, pipeline: str = "p") -> Account:
    opened = budget.open(pipeline)
    opened.weigh(size)
    return opened


def fill(one: Account) -> int:
    """Takes all that there is; how many batches the account then holds."""
    while one.take():
        pass
    return one.batches


def test_two_batches_whatever_they_weigh_and_however_little_there_is() -> None:
    budget = Budget(1)
    assert [fill(account(budget, 1 << 40)) for _ in range(5)] == [FEWEST] * 5


def test_few_batches_while_nobody_knows_what_they_weigh() -> None:
    one = account(Budget(LARGE))
    assert fill(one) == FEWEST
    one.weigh(1)
    assert fill(one) == MOST


def test_one_stream_has_its_own_bound_in_bytes() -> None:
    budget = Budget(LARGE)
    assert fill(account(budget, STREAM_BYTES // 5)) == 5
    assert fill(account(budget, STREAM_BYTES // 5 + 1)) == 4


def test_alone_it_may_hold_a_ninth() -> None:
    budget = Budget(90_000)
    one = account(budget, 1000)
    assert fill(one) == 10
    assert (budget.batches("p"), budget.bytes("p")) == (10, 10_000)


def test_what_is_sent_can_be_taken_again() -> None:
    one = account(Budget(90_000), 1000)
    fill(one)
    one.give_back()
    assert one.batches == 9
    assert fill(one) == 10


def test_the_largest_batch_counts_for_each() -> None:
    budget = Budget(90_000)
    one = account(budget, 1000)
    fill(one)
    one.weigh(3000)
    one.weigh(2000)
    assert budget.bytes("p") == 30_000
    assert not one.take()
    for _ in range(8):
        one.give_back()
    assert fill(one) == 3


def test_pipelines_share_it_and_are_told_apart() -> None:
    budget = Budget(90_000)
    first, second = account(budget, 1000, "a"), account(budget, 500, "b")
    assert (fill(first), fill(second)) == (10, MOST)
    assert (budget.bytes("a"), budget.bytes("b")) == (10_000, 8000)
    third = account(budget, 9_000, "a")
    assert fill(third) == FEWEST
    assert (budget.batches("a"), budget.batches("c")) == (12, 0)


def test_who_is_gone_holds_nothing() -> None:
    budget = Budget(90_000)
    one = account(budget, 1000)
    fill(one)
    one.close()
    one.close()
    assert (budget.bytes("p"), budget._used) == (0, 0)
    assert not budget._accounts["p"]
    one.give_back()
    one.weigh(5000)
    assert not one.take()
    assert budget._used == 0
    assert fill(account(budget, 1000)) == 10


@pytest.mark.parametrize("stopped", [1, 4, 16, 64])
def test_streams_that_nobody_reads_leave_something_to_others(stopped: int) -> None:
    budget = Budget(10_000_000)
    for _ in range(stopped):
        fill(account(budget, 10_000))
    free = budget.limit - budget._used
    assert free >= budget.limit * (8 / 9) ** stopped * 0.9
    reader = account(budget, 1000)
    assert fill(reader) >= min(MOST, free // 9 // 1000 - 1)


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "take", "take", "take", "give_back", "weigh", "close"]),
        st.integers(0, 7),
        st.integers(0, 3000),
    ),
    max_size=300,
)


@examples(300)
@given(limit=st.integers(0, 50_000), steps=STEPS)
def test_all_together_hold_no_more_than_the_budget_and_two_batches_each(
    limit: int, steps: list[Step]
) -> None:
    budget = Budget(limit)
    accounts: list[Account] = []
    for what, which, size in steps:
        if what == "open":
            accounts.append(account(budget, size))
        elif accounts:
            one = accounts[which % len(accounts)]
            had, closed = one.batches, one._closed
            if what == "weigh":
                # What is known from the beginning never grows.
                one.weigh(min(size, one._batch_bytes))
            elif what == "take":
                took = one.take()
                assert took or closed or had >= FEWEST, "two batches are always to be had"
                assert not (took and closed)
            else:
                getattr(one, what)()
        assert budget._used == budget.bytes("p") == sum(one.bytes for one in accounts)
        beyond = sum(max(0, one.batches - FEWEST) * one._batch_bytes for one in accounts)
        assert beyond <= limit
        assert all(one.batches <= MOST for one in accounts)


def test_threads() -> None:
    budget = Budget(1_000_000)

    def work() -> None:
        for _ in range(50):
            one = account(budget, 1000)
            for number in range(100):
                one.take()
                if number % 3 == 0:
                    one.give_back()
            one.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (budget._used, budget.batches("p")) == (0, 0)


def test_the_default_is_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "memory_bytes", lambda: 8 << 30)
    assert module.default_limit() == 2 << 30
