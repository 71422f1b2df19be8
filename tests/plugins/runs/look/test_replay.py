"""`infeed replay` against a server of fake pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.runs import amended_run, ids_at
from typer.testing import CliRunner, Result

import infeed
from infeed import testing
from infeed.cli import new_app
from infeed.shared.errors import InfeedError
from infeed_runs.look.replay import checksum

OLD, NEW, CURSOR = amended_run()


@pytest.fixture(autouse=True)
def _with_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "_refuse_segments", lambda _: None)


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(CURSOR.to_json()))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["replay", *arguments])


def test_steps_over_all_segments(serve: Any, run_file: str) -> None:
    address = serve(OLD, NEW).address
    result = run(address, run_file, "--steps", "8:12", "--json")
    assert result.exit_code == 0, result.output
    documents = json.loads(result.stdout)
    assert [(d["step"], d["start"], d["slots"]) for d in documents] == [
        (8, 64, 4),
        (9, 72, 4),
        (10, 80, 6),
        (11, 86, 6),
    ]
    with infeed.connect(address, "new", state=CURSOR, steps=(10, 12)) as feed:
        assert [d["checksum"] for d in documents[2:]] == [checksum(batch) for batch in feed]
    with infeed.connect(address, "new", state=CURSOR, steps=(8, 10)) as feed:
        assert [d["checksum"] for d in documents[:2]] == [checksum(batch) for batch in feed]
    lines = run(address, run_file, "--steps", "8:12").stdout.splitlines()
    assert lines[0] == f"step 8: positions 64 to 67, epoch 1, {documents[0]['checksum']}"
    assert len(lines) == 4


def test_batches_are_written(serve: Any, tmp_path: Path) -> None:
    address, out = serve(OLD).address, tmp_path / "batches"
    arguments = ("--steps", "6:7", "--rank", "1", "--world-size", "2", "--epochs", "1")
    result = run(address, "old@9", *arguments, "--batch-size", "3", "--out", str(out))
    assert result.exit_code == 0, result.output
    path = out / "step-000000006-rank-00001.npz"
    assert result.stdout.startswith("step 6: positions 39 to 41, epoch 0, ")
    assert result.stdout.endswith(f", {path}\n")
    with np.load(path) as saved:
        ids = ids_at((), 39, 3)
        assert saved["x"].tolist() == saved["batch.sample_ids"].tolist() == ids.tolist()
        texts = [[b"a", b""][one % 2] for one in ids.tolist()]
        assert saved["text"].tobytes() == b"".join(texts)
        assert saved["text.lengths"].tolist() == [*map(len, texts)]
        assert saved["batch.mask"].all()
        assert (saved["batch.start"], saved["batch.epoch"]) == (39, 0)


def test_a_checksum_depends_on_all_of_a_batch() -> None:
    def batch(**changes: Any) -> infeed.Batch:
        parts = {"x": np.arange(2), "text": np.array([b"ab", b"c"], object), **changes}
        ids, mask = parts.pop("ids", np.arange(2)), parts.pop("mask", np.array([True, True]))
        return infeed.Batch(parts, start=0, epoch=0, sample_ids=ids, mask=mask)

    changed = [
        batch(),
        batch(x=np.array([0, 2])),
        batch(text=np.array([b"a", b"bc"], object)),
        batch(ids=np.array([0, 2])),
        batch(mask=np.array([True, False])),
    ]
    assert len({*map(checksum, changed)}) == len(changed)
    assert checksum(batch()) == checksum(batch(x=np.arange(4)[::2] // 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "5"], "--steps must be A:B"),
        (["--steps", "-1:5"], "--steps must be A:B"),
        (["--steps", "5:5"], "no step lies from 5 to 5"),
        (["--steps", "5:6", "--rank", "2"], "rank 2 is out of range"),
        (["--steps", "5:6", "--batch-size", "3"], "do not fit"),
    ],
)
def test_wrong_options_are_refused(
    serve: Any, run_file: str, arguments: list[str], message: str
) -> None:
    result = run(serve(OLD, NEW).address, run_file, *arguments)
    assert isinstance(result.exception, InfeedError)
    assert message in str(result.exception)
