"""Fixture `nursery`, and the template of the run, from which xdist's workers are forked too.

So TensorFlow is loaded once, unless a part of the tests is selected: few parts need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.harness.nursery import Nursery, Template

_ADDRESS = "infeed_template"
_TEMPLATE = pytest.StashKey[Template]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Forks xdist's workers for all tests from the template."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        for spec in specs:
            spec.python = str(_template(config).python)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Sends the address of the template to an xdist worker."""
    node.workerinput[_ADDRESS] = _template(node.config).address


@pytest.fixture(scope="session")
def nursery(pytestconfig: pytest.Config) -> Iterator[Nursery]:
    """Forks processes from one that has loaded TensorFlow."""
    worker: dict[str, str] = getattr(pytestconfig, "workerinput", {})
    with Nursery(worker.get(_ADDRESS) or _template(pytestconfig).address) as nursery:
        yield nursery


def _template(config: pytest.Config) -> Template:
    """Returns the run's template, and starts it on the first call."""
    if _TEMPLATE not in config.stash:
        config.stash[_TEMPLATE] = Template()
        config.add_cleanup(config.stash[_TEMPLATE].close)
    return config.stash[_TEMPLATE]
