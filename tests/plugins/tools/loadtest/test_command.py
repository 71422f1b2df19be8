"""`infeed loadtest`: output and exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.tools.loadtest.samples import fake
from typer.testing import CliRunner, Result

from infeed.cli import new_app

QUICK = ("--trainers", "2", "--steps", "20", "--step-ms", "1")
SEARCH = ("--step-ms", "1", "--duration", "0.2", "--min-utilisation", "0.001", "--find-max")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["loadtest", *arguments])


def test_the_report_is_text_json_and_html(serve: Any, tmp_path: Path) -> None:
    address = serve(fake()).address
    files = {name: tmp_path / f"report.{name}" for name in ("json", "html")}
    result = run(
        address, "numbers", *QUICK, "--json", str(files["json"]), "--html", str(files["html"])
    )
    assert result.exit_code == 0, result.output
    assert "Audit: exact" in result.stdout
    assert "numbers: 2 ranks of one job, batches of 4" in result.stdout
    document = json.loads(files["json"].read_text())
    assert (document["ok"], document["plan"]["trainers"]) == (True, 2)
    assert files["html"].read_text().startswith("<!doctype html>")


def test_a_missed_threshold_is_named(serve: Any) -> None:
    options = ("--min-samples-per-second", "1e7")
    result = run(serve(fake()).address, "numbers", *QUICK, *options)
    assert result.exit_code == 1
    assert "MISSED: throughput" in result.stdout


def test_the_search_ends_with_a_number(serve: Any) -> None:
    result = run(serve(fake()).address, "numbers", "--trainers", "2", *SEARCH, "--json", "-")
    assert result.exit_code == 0, result.output
    search = json.loads(result.stdout)["search"]
    assert (search["max_trainers"], search["is_bounded"]) == (2, False)
    assert list(search["probes"]) == ["1", "2"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--trainers", "0"), "--trainers"),
        (("--find-max", "--step-ms", "0"), "--find-max needs --step-ms"),
    ],
)
def test_a_wrong_option_has_status_2(options: tuple[str, ...], named: str) -> None:
    result = run("127.0.0.1:1", "numbers", *options)
    assert result.exit_code == 2, result.output
    assert named in " ".join(result.stderr.replace("│", " ").split())


def test_a_test_without_a_server_leaves_no_file(tmp_path: Path) -> None:
    html, kept = tmp_path / "report.html", tmp_path / "kept.json"
    kept.write_text("kept")
    options = ("--html", str(html), "--json", str(kept), "--timeout", "0.1")
    assert run("127.0.0.1:1", "numbers", *options).exit_code == 1
    assert run("127.0.0.1:1", "numbers", "--html", "away/r.html").exit_code == 1
    assert not html.exists()
    assert kept.read_text() == "kept"
