"""A client meets what no server would send; `make fuzz` is the long run of this."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest
from tests.stress.fuzz.case import Kinds
from tests.stress.fuzz.client_fuzzer import bounded, fuzz_client, play
from tests.stress.fuzz.kinds import REPLIES
from tests.stress.fuzz.replies import WrongError, compare, judged
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.scripts import played
from tests.stress.fuzz.sessions import NAMES, Session, replay

from infeed.errors import ProtocolError

SEED = 12


def test_a_share_of_the_cases(sessions: tuple[Session, ...]) -> None:
    report = Report(SEED, "client")
    with bounded():
        play(report, sessions, REPLIES.cases(1000), 1000)
    assert report.problems == []
    assert report.cases >= 1000
    assert set(report.ends) == set(REPLIES.known)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_thousand_cases() -> None:
    report = Report(SEED, "client")
    fuzz_client(report, 20_000)
    print(report)
    assert report.problems == []
    assert report.cases >= 20_000


@pytest.mark.parametrize("index", range(len(NAMES)))
def test_a_session_as_it_was_said_is_right(sessions: tuple[Session, ...], index: int) -> None:
    session = sessions[index]
    assert judged(session, lambda: replay(session.assembler(), session.messages)) == "whole"
    assert judged(session, lambda: played(session, [session.streamed])) == "whole"


# That a run without violations says something: what is wrong is found.


def test_other_values_are_a_violation(sessions: tuple[Session, ...]) -> None:
    session = sessions[0]
    right = session.batches[1]
    compare(session, 1, right, same=True)
    with pytest.raises(WrongError, match="another batch"):
        compare(session, 0, right, same=False)
    other = right.replaced({**right, "label": right["label"] + 1})
    with pytest.raises(WrongError, match="'label' has other values"):
        compare(session, 1, other, same=True)
    compare(session, 1, other, same=False)
    for label in (right["label"].astype(np.int32), right["label"][:1]):
        with pytest.raises(WrongError, match="'label' is int"):
            compare(session, 1, right.replaced({**right, "label": label}), same=False)


def test_what_the_client_should_not_raise_is_a_violation(sessions: tuple[Session, ...]) -> None:
    kinds: Kinds[Any] = Kinds()

    @kinds.add()
    def own(rng: Any, session: Session) -> str:
        def fail() -> Any:
            raise ProtocolError("as it should")

        return judged(session, fail)

    @kinds.add()
    def other(rng: Any, session: Session) -> str:
        def fail() -> Any:
            raise KeyError("x")

        return judged(session, fail)

    report = Report(SEED, "client")
    play(report, sessions, kinds.cases(2), 2)
    assert report.ends["own"]["ProtocolError"] == 1
    (problem,) = report.problems
    assert "KeyError" in problem
    assert "--case other:0" in problem


def test_memory_is_bounded() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with bounded(), pytest.raises(MemoryError):
        np.empty(8 << 30, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
