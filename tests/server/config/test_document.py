"""Tests of `config/document.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.shared.errors import ConfigError
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
        ("a: 1\nb: 2\na: 3\n", r":3: a: given twice, first on line 1"),
        ("a: !!python/object:os.system x\n", r":1: not valid YAML"),
        ("a: &a [*a]\n", r": nested too deeply, or contains itself"),
        ("[" * 600, r": nested too deeply"),
    ],
)
def test_error_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        document.read(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("a: 1\nb: 2\na: 3\n", [":3: a: given twice, first on line 1"]),
        ("a:\n  1: x\n", [":2: a: the key 1 is not text"]),
        ("a:\n- 2027-13-01\n", [":2: a[0]: month must be in 1..12"]),
        (
            "1: x\na: 2027-13-01\nb: {c: 1, c: 2}\n",
            [
                ":1: the key 1 is not text",
                ":2: a: month must be in 1..12",
                ":3: b.c: given twice, first on line 3",
            ],
        ),
    ],
)
def test_all_problems_of_keys_and_values_are_kept(
    tmp_path: Path, text: str, messages: list[str]
) -> None:
    file = write(tmp_path, text)
    assert list(map(str, document.parse(file).problems)) == [
        f"{file}{message}" for message in messages
    ]


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml:1: .* cannot be read: No such file"):
        document.read(str(tmp_path / "missing.yaml"))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: 1\n\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yaml:2: the file is not UTF-8 text"):
        document.read(str(binary))
