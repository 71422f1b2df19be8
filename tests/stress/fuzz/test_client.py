"""Client fuzzer: a share of its cases, and checks that violations are detected."""

from __future__ import annotations

import numpy as np
import pytest
from tests.stress.fuzz.client_fuzzer import bounded, fuzz_client, run_cases
from tests.stress.fuzz.replies import REPLIES, WrongResultError, compare, run_client
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.scripts import replay_bytes
from tests.stress.fuzz.sessions import NAMES, Session, replay_messages

SEED = 12


def test_thousand_client_cases_have_no_violation(sessions: tuple[Session, ...]) -> None:
    report = Report(SEED, "client")
    with bounded():
        run_cases(report, sessions, REPLIES.cases(1000))
    assert report.problems == []
    assert report.cases >= 1000
    assert set(report.outcomes) == set(REPLIES.known)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_thousand_client_cases_have_no_violation() -> None:
    report = Report(SEED, "client")
    fuzz_client(report, 20_000)
    print(report)
    assert report.problems == []
    assert report.cases >= 20_000


@pytest.mark.parametrize("index", range(len(NAMES)))
def test_unchanged_session_is_read_completely(sessions: tuple[Session, ...], index: int) -> None:
    session = sessions[index]
    assert (
        run_client(session, lambda: replay_messages(session.assembler(), session.messages))
        == "whole"
    )
    assert run_client(session, lambda: replay_bytes(session, [session.stream_response])) == "whole"


# Violations are detected.


def test_changed_values_are_a_violation(sessions: tuple[Session, ...]) -> None:
    session = sessions[0]
    expected = session.batches[1]
    compare(session, 1, expected, same=True)
    with pytest.raises(WrongResultError, match="another batch"):
        compare(session, 0, expected, same=False)
    other = expected.replaced({**expected, "label": expected["label"] + 1})
    with pytest.raises(WrongResultError, match="'label' has other values"):
        compare(session, 1, other, same=True)
    compare(session, 1, other, same=False)
    for label in (expected["label"].astype(np.int32), expected["label"][:1]):
        with pytest.raises(WrongResultError, match="'label' is int"):
            compare(session, 1, expected.replaced({**expected, "label": label}), same=False)
