"""Paths and files: globs, stamps, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed import SourceError
from infeed_server.storage.files import (
    INDEX_SUFFIX,
    describe_nearest_folder,
    expand_globs,
    read_bytes,
    read_stamp,
)


def test_expand_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "b.x",
        "a.x",
        "deep/er/c.x",
        "odd[1].x",
        f"a.x{INDEX_SUFFIX}",
        f"a.x{INDEX_SUFFIX}.tmp",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert expand_globs(["b.x", "a*"]) == [str(tmp_path / "a.x"), str(tmp_path / "b.x")]
    assert expand_globs(["**/c.x"]) == [str(tmp_path / "deep/er/c.x")]
    assert expand_globs(["odd[1].x"]) == [str(tmp_path / "odd[1].x")]
    assert expand_globs(["*"]) == [str(tmp_path / name) for name in ("a.x", "b.x", "odd[1].x")]
    remote = f"file://{tmp_path}"
    assert expand_globs([f"{remote}/a*", f"{remote}/deep/er/*"]) == [
        f"{remote}/a.x",
        f"{remote}/deep/er/c.x",
    ]
    with pytest.raises(SourceError, match="no file matches 'none/\\*'") as caught:
        expand_globs(["none/*"])
    assert str(tmp_path) in str(caught.value)
    assert caught.value.metadata == {"pattern": "none/*"}
    with pytest.raises(SourceError, match="no file matches"):
        expand_globs([f"{remote}/none/*"])
    with pytest.raises(SourceError, match="is a folder"):
        expand_globs([f"{remote}/deep"])


def test_describe_nearest_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert describe_nearest_folder(str(tmp_path / "a/b/c*")).endswith(
        f"{str(tmp_path / 'a')!r}, which holds nothing"
    )
    for number in range(7):
        (tmp_path / "a" / str(number)).touch()
    assert describe_nearest_folder(str(tmp_path / "a/b")).endswith("holds 0, 1, 2, 3, 4 and 2 more")
    assert "'/', which holds" in describe_nearest_folder("/no-such-folder-anywhere/b")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    for prefix in ("", "file://"):
        path = f"{prefix}{tmp_path}/none"
        with pytest.raises(SourceError, match="cannot open"):
            read_stamp(path)
        with pytest.raises(SourceError, match="cannot read"):
            read_bytes(path)
    (tmp_path / "a").write_bytes(b"abc")
    assert read_bytes(f"file://{tmp_path}/a") == read_bytes(f"{tmp_path}/a") == b"abc"
    assert read_stamp(f"file://{tmp_path}/a").size == read_stamp(f"{tmp_path}/a").size == 3
