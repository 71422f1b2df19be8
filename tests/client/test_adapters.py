"""Tests of names that packages add to modules of `infeed`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.packages import write_package

from infeed.adapters import added_names
from infeed.shared.errors import ConfigError


def test_a_name_is_imported_once_and_two_packages_may_not_add_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "[infeed.tests]\nmade = made_of:MADE\nlacking = lacks:X\nfour = json:loads\n"
    write_package(tmp_path, "one", entries, made_of="MADE = object()\n", lacks="import no_such\n")
    write_package(tmp_path, "other", "[infeed.tests]\nfour = json:dumps\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_name, names = added_names("infeed.tests")
    assert names() == ["four", "lacking", "made"]
    assert import_name("made") is import_name("made")
    with pytest.raises(AttributeError, match=r"module 'infeed\.tests' has no attribute 'five'"):
        import_name("five")
    with pytest.raises(ModuleNotFoundError, match="no_such"):
        import_name("lacking")
    with pytest.raises(ConfigError, match=r"'four' is offered by (one|other) 1\.0 and"):
        import_name("four")
