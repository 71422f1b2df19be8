"""Fixtures of the quick cases: one server, and its recorded sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.harness.nursery import Nursery
from tests.stress.fuzz import server_under_test
from tests.stress.fuzz.server_under_test import ServerUnderTest
from tests.stress.fuzz.sessions import Session, record


@pytest.fixture(scope="session")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerUnderTest]:
    with server_under_test.started(tmp_path_factory.mktemp("server"), nursery.start) as running:
        yield running


@pytest.fixture(scope="session")
def sessions(server: ServerUnderTest) -> tuple[Session, ...]:
    return record(server)
