"""Hostile replies to a client: an `InfeedError` or correct batches, in bounded memory."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples
from tests.stress.fuzz.replies import REPLIES, Reply, run_client
from tests.stress.fuzz.sessions import Session, replay_messages

_EXTRA_BYTES = 4 << 30
"""Additional address space, thread stacks included; a larger allocation is a violation."""


@pytest.fixture
def bounded() -> Iterator[None]:
    """Limits this process's address space to `_EXTRA_BYTES` more than its current size."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + _EXTRA_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("play", REPLIES, ids=lambda play: play.__name__)
def test_hostile_replies_have_no_violation(
    sessions: tuple[Session, ...], bounded: None, play: Reply
) -> None:
    @examples(500)
    @given(rng=st.randoms(use_true_random=True))
    def run(rng: random.Random) -> None:
        play(rng, rng.choice(sessions))

    run()


def test_unchanged_session_is_read_completely(sessions: tuple[Session, ...]) -> None:
    for session in sessions:
        play = partial(replay_messages, session.assembler(), session.messages)
        assert run_client(session, play) == "whole"
