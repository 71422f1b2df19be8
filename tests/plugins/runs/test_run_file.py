"""Runs by a file or a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infeed.cursor import Cursor
from infeed.run import Run
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed_runs.run_file import load_run

CURSOR = Cursor("train", "ab12", 17, 645)


@pytest.mark.parametrize(
    ("text", "expected"), [("train", Run("train")), ("train@17", Run("train", 17))]
)
def test_a_run_by_its_name(text: str, expected: Run) -> None:
    assert load_run(text) == expected


@pytest.mark.parametrize("text", ["train@", "train@x", "train@-1", f"train@{1 << 63}", "@7", ""])
def test_a_wrong_seed_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="PIPELINE@SEED"):
        load_run(text)


@pytest.mark.parametrize("key", [None, "cursor", "state"])
def test_a_run_of_a_file(tmp_path: Path, key: str | None) -> None:
    path = tmp_path / "run.json"
    state = CURSOR.to_json()
    path.write_text(json.dumps(state if key is None else {key: state, "epoch": 3}))
    assert load_run(str(path)) == Run("train", 17, CURSOR)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "run.json: .*Feed.state"),
        ("[]", "run.json: a cursor is the dict"),
        (
            '{"pipeline": "train"}',
            "run.json: the cursor lacks version, fingerprint, seed, position",
        ),
        (None, "run.json: No such file.*Feed.state"),
    ],
)
def test_a_file_without_a_cursor_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "run.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CursorError, match=message):
        load_run(str(path))
