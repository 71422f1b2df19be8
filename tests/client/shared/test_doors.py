"""Tests of doors: objects of other packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.packages import write_package

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError


def test_objects_are_found_by_name_and_imported_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(
        tmp_path,
        "seven-things",
        "[infeed.tests]\nseven = seven_things:NUMBER\nsix = seven_things:MISSING\n",
        seven_things="NUMBER = 7\n",
    )
    write_package(tmp_path, "broken", "[infeed.tests]\nfive = broken_things:X\n")
    entries = "[infeed.tests]\nfour = leaving:X\n"
    write_package(tmp_path, "leaver", entries, leaving="import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    door = Door("infeed.tests", "thing")
    assert door.names() == ["five", "four", "seven", "six"]
    assert door.place("seven") == "seven_things:NUMBER of seven-things 1.0"
    assert door.load("seven") == 7
    with pytest.raises(ConfigError, match=r"^the thing 'six' of seven-things 1\.0 cannot be impor"):
        door.load("six")
    text = r"^the thing 'five' of broken 1\.0 .*: ModuleNotFoundError: .*'broken_things'; repair"
    with pytest.raises(ConfigError, match=text):
        door.load("five")
    with pytest.raises(ConfigError, match=r"'four' of leaver 1\.0 .*: SystemExit: 3; repair"):
        door.load("four")


def test_a_signal_ends_the_program_that_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raises = "raise SystemExit(143)\n"
    write_package(
        tmp_path, "ended", "[infeed.tests]\nthree = ended_by_sigterm:X\n", ended_by_sigterm=raises
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match="143"):
        Door("infeed.tests", "thing").load("three")


def test_a_name_that_two_packages_offer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        write_package(tmp_path, name, "[infeed.tests]\nseven = json:loads\nsix = json:dumps\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = r"'seven' is offered by (one|other) 1\.0 and (one|other) 1\.0; uninstall all but one"
    with pytest.raises(ConfigError, match=text):
        Door("infeed.tests", "thing").load("seven")
