"""Tests of `config/document.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.errors import ConfigError
from infeed_server.config import document


def write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "pipelines.yaml"
    file.write_text(text)
    return str(file)


def test_location_has_the_line_of_the_nearest_part(tmp_path: Path) -> None:
    doc = document.read(write(tmp_path, "a:\n  b:\n    - x: 1\n    - {y: 2}\n"))
    assert doc.value == {"a": {"b": [{"x": 1}, {"y": 2}]}}
    assert doc.location(("a", "b", 1, "y")).endswith("pipelines.yaml:4: a.b[1].y")
    assert doc.location(("a", "nothing")).endswith(":1: a.nothing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1,\n", r":3: not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", r":3: a: given twice, first in line 1"),
        ("a:\n  1: x\n", r":2: the key 1 is not text"),
        ("a: !!python/object:os.system x\n", r":1: not valid YAML"),
        ("a:\n- 2027-13-01\n", r":2: a\[0\]: month must be in 1..12"),
        ("a: &a [*a]\n", r": nested too deeply, or within itself"),
        ("[" * 600, r": nested too deeply"),
    ],
)
def test_error_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        document.read(write(tmp_path, text))


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.yaml: No such file"):
        document.read(str(tmp_path / "missing.yaml"))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        document.read(str(binary))
