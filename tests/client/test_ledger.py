"""The ledger: every step is delivered once and in order, whatever becomes of the servers."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.ledger import LEAST_PATIENCE_SECONDS, Ledger


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ledger(clock: Clock, steps: int | None = None, servers: str = "ab") -> Ledger[int]:
    book: Ledger[int] = Ledger(steps, clock)
    for server in servers:
        book.join(server)
    return book


def delivered(book: Ledger[int]) -> list[int]:
    steps = []
    while (step := book.deliver()) is not None:
        steps.append(step)
    return steps


def asked(book: Ledger[int], server: str, limit: int) -> list[int]:
    """Asks the server for all that it may be asked for now."""
    steps = []
    while (step := book.ask(server, limit)) is not None:
        steps.append(step)
    return steps


def test_one_server_is_asked_for_all_that_is_wanted(clock: Clock) -> None:
    book = ledger(clock, servers="a")
    assert [book.ask("a", 3) for _ in range(4)] == [0, 1, 2, None]
    book.arrive("a", 0, 0)
    assert delivered(book) == [0]
    assert book.ask("a", 4) == 3


def test_the_first_to_join_does_not_get_all(clock: Clock) -> None:
    book = ledger(clock, servers="a")
    book.alone = False
    assert [book.ask("a", 20) for _ in range(5)] == [0, 1, 2, 3, None]
    book.join("b")
    assert [book.ask("b", 20) for _ in range(5)] == [4, 5, 6, 7, None]


def test_the_end(clock: Clock) -> None:
    book = ledger(clock, steps=2, servers="a")
    assert [book.ask("a", 9) for _ in range(3)] == [0, 1, None]
    assert not book.complete
    for step in range(2):
        book.arrive("a", step, step)
    assert delivered(book) == [0, 1]
    assert book.complete


def test_servers_share_and_the_order_stays(clock: Clock) -> None:
    book = ledger(clock)
    assert [book.ask(server, 4) for server in "abab"] == [0, 1, 2, 3]
    book.arrive("b", 1, 1)
    assert delivered(book) == []
    book.arrive("a", 0, 0)
    assert delivered(book) == [0, 1]


def test_what_a_lost_server_owed_comes_first(clock: Clock) -> None:
    book = ledger(clock)
    assert [book.ask(server, 8) for server in "aabb"] == [0, 1, 2, 3]
    book.arrive("a", 0, 0)
    book.leave("a")
    assert [book.ask("b", 8) for _ in range(3)] == [1, 4, 5]
    assert book.owed("a") == 0


def test_a_server_that_returns_is_asked_again(clock: Clock) -> None:
    book = ledger(clock, servers="a")
    assert book.ask("a", 2) == 0
    book.leave("a")
    book.join("a")
    assert [book.ask("a", 2) for _ in range(2)] == [0, 1]


def test_a_quick_server_may_owe_more(clock: Clock) -> None:
    book = ledger(clock)
    for _ in range(30):
        clock.now += 1
        for server, seconds in (("a", 0.1), ("b", 0.9)):
            step = book.ask(server, book.next + 20)
            assert step is not None
            clock.now += seconds
            book.arrive(server, step, step)
        delivered(book)
    limit = book.next + 20
    shares = {"a": 0, "b": 0}
    for server in shares:
        while book.ask(server, limit) is not None:
            shares[server] += 1
    assert shares == {"a": 18, "b": 2}


def test_a_straggler_is_asked_of_an_idle_server_once(clock: Clock) -> None:
    book = ledger(clock, steps=2)
    assert [book.ask("a", 2), book.ask("b", 2)] == [0, 1]
    book.arrive("b", 1, 1)
    clock.now += 0.9 * LEAST_PATIENCE_SECONDS
    assert book.ask("b", 2) is None
    clock.now += LEAST_PATIENCE_SECONDS
    assert book.awaited() == ("a", pytest.approx(1.9))
    assert book.ask("b", 2) == 0
    assert book.ask("b", 2) is None
    assert book.hedges == 1
    book.join("c")
    clock.now += 100
    assert book.ask("c", 2) is None  # two owe it already
    assert book.arrive("b", 0, 0)
    assert delivered(book) == [0, 1]
    assert not book.arrive("a", 0, 0)
    assert delivered(book) == []


def test_a_loss_of_one_of_two_that_owe_a_step_asks_nobody(clock: Clock) -> None:
    book = ledger(clock, steps=1)
    assert book.ask("a", 1) == 0
    clock.now = 2
    assert book.ask("b", 1) == 0
    book.leave("a")
    book.join("c")
    assert book.ask("c", 1) is None
    book.leave("b")
    assert book.ask("c", 1) == 0


def test_second_requests_are_bounded(clock: Clock) -> None:
    book = ledger(clock)
    hedged = 0
    for step in range(100):
        assert book.ask("a", step + 1) == step
        clock.now += 100
        second = book.ask("b", step + 1)
        hedged += second is not None
        if second is not None:
            book.arrive("b", step, step)
        book.arrive("a", step, step)
        assert delivered(book) == [step]
    assert hedged == book.hedges <= 4 + 0.05 * 100


def frozen(clock: Clock) -> tuple[Ledger[int], list[int]]:
    """A book of three servers, of which "a" has frozen a moment ago, and the steps that it owes."""
    book = ledger(clock, servers="abc")
    for _ in range(9):
        for server in "abc":
            step = book.ask(server, book.next + 18)
            assert step is not None
            clock.now += 0.01
            book.arrive(server, step, step)
        delivered(book)
    owed: dict[str, list[int]] = {server: [] for server in "abc"}
    for server in "abc" * 6:
        step = book.ask(server, book.next + 18)
        assert step is not None
        owed[server].append(step)
    for server in "bc":
        for step in owed[server]:
            clock.now += 0.01
            book.arrive(server, step, step)
    assert delivered(book) == []
    return book, owed["a"]


def answer_all(book: Ledger[int], server: str) -> list[int]:
    """All that the server is asked for now, without a new batch being wanted, it sends."""
    limit = book.next + 18
    steps = []
    while (step := book.ask(server, limit)) is not None:
        steps.append(step)
    for step in steps:
        book.arrive(server, step, step)
    return steps


def test_a_server_that_comes_back_has_to_show_its_pace_again(clock: Clock) -> None:
    book = ledger(clock)
    book.alone = False
    for _ in range(5):
        step = book.ask("a", book.next + 20)
        clock.now += 0.1
        book.arrive("a", step, step)
        delivered(book)
    limit = book.next + 20
    assert len(asked(book, "a", limit)) == 10
    book.leave("a")
    book.join("a")
    assert len(asked(book, "a", limit)) == 4


def test_answers_of_a_server_that_is_gone_make_no_other_silent(clock: Clock) -> None:
    book = ledger(clock)
    assert [book.ask("a", 4), book.ask("b", 4)] == [0, 1]
    clock.now += 1
    book.arrive("a", 0, 0)
    assert delivered(book) == [0]
    book.leave("a")
    book.join("c")
    clock.now += 100
    assert book.ask("c", 4) == 2


def test_a_server_is_measured_by_its_own_pace(clock: Clock) -> None:
    """One that takes 0.1 s for a batch is silent after a second, however slow the others are."""
    book = ledger(clock, servers="abc")
    for server, seconds in (("a", 0.1), ("b", 20.0)):
        step = book.ask(server, 9)
        clock.now += seconds
        book.arrive(server, step, step)
        delivered(book)
    assert [book.ask("a", 9), book.ask("b", 9)] == [2, 3]
    clock.now += 0.5
    book.arrive("b", 3, 3)
    clock.now += 1
    assert book.ask("c", 9) == 2


def test_the_slowest_server_is_asked_for_two(clock: Clock) -> None:
    book = ledger(clock)
    for server, seconds in (("a", 0.001), ("b", 100.0)):
        step = book.ask(server, 9)
        clock.now += seconds
        book.arrive(server, step, step)
        delivered(book)
    assert [book.ask("b", book.next + 9) for _ in range(3)] == [2, 3, None]


def test_there_is_no_step_behind_the_end(clock: Clock) -> None:
    book = ledger(clock)
    assert not book.complete
    assert [book.ask("a", 9) for _ in range(4)] == [0, 1, 2, 3]
    for end in (5, 2, 7):
        book.end(end)
    book.leave("a")
    assert [book.ask("b", 9) for _ in range(3)] == [0, 1, None]
    assert not book.complete
    for step in range(2):
        book.arrive("b", step, step)
    assert delivered(book) == [0, 1]
    assert book.complete


def test_nothing_is_here_after_a_drop(clock: Clock) -> None:
    book = ledger(clock)
    assert book.awaited() is None
    assert [book.ask("a", 9), book.ask("a", 9)] == [0, 1]
    book.arrive("a", 1, 1)
    book.drop()
    assert book.awaited() == ("a", 0)
    book.arrive("a", 0, 0)
    assert delivered(book) == [0]


def test_a_silent_server_has_no_share(clock: Clock) -> None:
    book, late = frozen(clock)
    book.leave("c")
    clock.now += 10
    limit = book.next + 40
    assert asked(book, "b", limit) == [*late, *range(book.next + 18, limit)]


def test_what_is_here_is_not_taken_again(clock: Clock) -> None:
    book, late = frozen(clock)
    clock.now += 10
    while book.ask("b", book.next + 18) is not None:
        pass
    assert book.arrive("b", late[1], late[1])
    assert not book.arrive("a", late[1], -1)
    for step in (late[0], *late[2:]):
        book.arrive("b", step, step)
    assert late[1] in delivered(book)


def test_all_that_a_silent_server_owes_is_asked_of_others_at_once(clock: Clock) -> None:
    book, late = frozen(clock)
    assert len(late) == 6
    clock.now += 0.5 * LEAST_PATIENCE_SECONDS
    assert book.ask("b", book.next + 18) is None
    clock.now += LEAST_PATIENCE_SECONDS
    assert answer_all(book, "b") == late
    assert book.hedges == 6
    assert len(delivered(book)) == 18


def test_a_silent_server_is_asked_again_when_it_has_sent_what_it_owed(clock: Clock) -> None:
    book, late = frozen(clock)
    clock.now += 10
    answer_all(book, "b")
    delivered(book)
    for step in late:
        assert book.ask("a", book.next + 18) is None
        assert not book.arrive("a", step, step)
    assert book.ask("a", book.next + 18) is not None


def test_a_late_answer_is_taken_where_it_is_the_first(clock: Clock) -> None:
    book, late = frozen(clock)
    clock.now += 10
    assert book.ask("b", book.next + 18) == late[0]
    for step in late:
        assert book.arrive("a", step, step)
    assert delivered(book)[:6] == list(range(book.next - 18, book.next - 12))
    assert not book.arrive("b", late[0], late[0])
    assert book.hedges == 1


def test_silence_is_measured_by_the_pace_however_much_is_owed(clock: Clock) -> None:
    """Of two servers that are always busy, one stops: a step usually takes 4 s, an answer 0.2 s."""
    book = ledger(clock)
    owed: dict[str, list[int]] = {"a": [], "b": []}
    for _ in range(200):
        for server, steps in owed.items():
            while (step := book.ask(server, book.next + 40)) is not None:
                steps.append(step)
            clock.now += 0.1
            book.arrive(server, steps[0], steps.pop(0))
            delivered(book)
    assert book.hedges == 0
    assert book.patience > 10
    late = list(owed["a"])
    for _ in range(40):
        clock.now += 0.1
        if owed["b"]:
            book.arrive("b", owed["b"][0], owed["b"].pop(0))
        while (step := book.ask("b", book.next + 40)) is not None:
            owed["b"].append(step)
        delivered(book)
    assert book.next > late[-1]
    assert book.hedges == len(late)


def test_a_slow_server_is_not_silent(clock: Clock) -> None:
    book = ledger(clock)
    begun: dict[str, tuple[int, float] | None] = {"a": None, "b": None}
    again = 0
    for _ in range(400):
        clock.now += 0.1
        for server, seconds in (("a", 2.0), ("b", 0.1)):
            task = begun[server]
            if task is not None and clock.now >= task[1] + seconds:
                again += not book.arrive(server, task[0], task[0])
                task = None
            if task is None:
                step = book.ask(server, book.next + 40)
                task = None if step is None else (step, clock.now)
            begun[server] = task
        delivered(book)
    # Of its first step nobody knows that it is slow.
    assert book.hedges <= 1
    assert again <= 1
    assert book.next > 300


def test_nobody_is_silent_where_all_are(clock: Clock) -> None:
    book = ledger(clock, servers="abc")
    for server in "abc" * 4:
        assert book.ask(server, 12) is not None
    clock.now += 100
    assert [book.ask(server, 12) for server in "abc"] == [None, None, None]
    assert book.hedges == 0


def test_what_was_late_when_its_server_went_is_not_asked_a_third_time(clock: Clock) -> None:
    book, late = frozen(clock)
    clock.now += 10
    assert [book.ask("b", book.next + 18) for _ in range(3)] == late[:3]
    book.leave("a")
    assert [book.ask("c", book.next + 18) for _ in range(4)] == [*late[3:], None]


def test_what_two_servers_kept_is_asked_of_the_third(clock: Clock) -> None:
    book, late = frozen(clock)
    clock.now += 10
    assert book.ask("b", book.next + 18) == late[0]
    clock.now += 1
    assert book.ask("c", book.next + 18) == late[1]
    book.arrive("c", late[1], late[1])
    clock.now += 10
    assert book.ask("c", book.next + 18) == late[0]


def test_late_answers_do_not_make_for_more_patience(clock: Clock) -> None:
    book, late = frozen(clock)
    clock.now += 30
    answer_all(book, "b")
    delivered(book)
    for step in late:
        book.arrive("a", step, step)
    assert book.patience == LEAST_PATIENCE_SECONDS


def test_who_is_not_there_is_asked_for_nothing(clock: Clock) -> None:
    assert ledger(clock).ask("z", 8) is None


# Seconds that pass, a server, what becomes of it, and how far ahead it may be asked.
EVENTS = list(
    product((0, 0.01, 3.0), "abc", ("ask", "ask", "arrive", "arrive", "leave"), range(1, 9))
)


@examples(300)
@given(
    st.integers(1, 30),
    # A list without a lower limit would have five entries or so.
    st.integers(0, 120).flatmap(
        lambda count: st.lists(st.sampled_from(EVENTS), min_size=count, max_size=count)
    ),
)
def test_every_step_once_and_in_order(
    total: int, events: list[tuple[float, str, str, int]]
) -> None:
    """Servers come, go, answer what they owe in any order, slowly or at once."""
    clock = Clock()
    book = ledger(clock, steps=total, servers="")
    owed: dict[str, list[int]] = {}
    out: list[int] = []
    for seconds, server, event, ahead in events:
        clock.now += seconds
        if server not in owed:
            book.join(server)
            owed[server] = []
        if event == "leave":
            book.leave(server)
            del owed[server]
        elif event == "ask":
            step = book.ask(server, len(out) + ahead)
            if step is not None:
                assert len(out) <= step < total
                owed[server].append(step)
        elif owed[server]:
            step = owed[server].pop(0)
            book.arrive(server, step, step)
        out += delivered(book)
        assert all(book.owed(name) == len(steps) for name, steps in owed.items())
    # Whatever has happened, one good server ends it.
    for name in list(owed):
        if name != "z":
            book.leave(name)
    book.join("z")
    while (step := book.ask("z", total)) is not None:
        book.arrive("z", step, step)
        out += delivered(book)
    assert out == list(range(total))
    assert book.complete
    assert not book._owers
