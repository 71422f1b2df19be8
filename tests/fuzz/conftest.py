"""One server for all quick cases, and what it has said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fuzz import site
from tests.fuzz.sessions import Session, record
from tests.fuzz.site import Site


@pytest.fixture(scope="session")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site.started(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="session")
def sessions(there: Site) -> tuple[Session, ...]:
    return record(there)
