"""Checks of the documentation: examples run, and lists are complete."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import patch

import pytest
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import infeed
from infeed import errors
from infeed.audit.outcome import EpochTotals
from infeed.audit.run import audit
from infeed.cli import main
from infeed.cli.audit import audit as audit_command
from infeed.cli.connection import connection
from infeed.feed import Feed
from infeed.stats import Stats
from infeed.testing import FakeTransport
from infeed_server.cli import data_service
from infeed_server.control.metrics import Metrics
from infeed_server.data_service.options import ServiceOptions
from infeed_server.pipeline.definition import BatchOptions, Pipeline, Shuffle
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import SOURCE_CLASSES
from infeed_server.sources.tfrecord.features import FeatureOptions
from infeed_server.transforms import REGISTRY

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for folder in (".", "docs", "examples", "deploy")
    for page in (ROOT / folder).glob("*.md")
)
Block = tuple[str, int, str]
"""A page, the first line of a code block, and the code."""


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """Returns the text outside of code blocks."""
    return re.sub(r"^```.*?^```$", "", text(page), flags=re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[Block]:
    """Returns the code blocks of all pages in a language."""
    result = []
    for page in PAGES:
        # All languages are matched, so that an end of a block is never taken for a beginning.
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL):
            if match[1] == language:
                line = text(page).count("\n", 0, match.start()) + 1
                result.append((page, line, match[2]))
    return result


def case_id(value: Any) -> str:
    """Returns the id of a test case, which must be the same in all xdist workers."""
    if isinstance(value, tuple):
        return f"{value[0]}:{value[1]}"
    return str(getattr(value, "__name__", value))


def section(page: str, heading: str) -> str:
    """Returns the text of a section, including its subsections."""
    _, match, rest = text(page).partition(f"\n{heading}\n")
    assert match, f"{page} has no heading {heading!r}"
    level = len(heading.partition(" ")[0])
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(part: str, *columns: str) -> list[list[str]]:
    """Returns the cells of the first table whose header is these columns."""
    _, match, rest = part.partition(f"| {' | '.join(columns)} |")
    assert match, f"no table of {columns}"
    table = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table]


def spans(cell: str) -> list[str]:
    """Returns the code spans."""
    return re.findall(r"`([^`]*)`", cell)


# --- code ---


@pytest.mark.parametrize("block", blocks("yaml"), ids=case_id)
def test_yaml_block_defines_pipelines(block: Block):
    document = yaml.safe_load(block[2])
    for definition in document.get("pipelines", {}).values():
        parse(definition)


@pytest.mark.parametrize("block", blocks("python"), ids=case_id)
def test_python_block_compiles(block: Block):
    page, line, code = block
    compile(code, f"{page}:{line}", "exec")


@pytest.mark.parametrize(
    "block", [each for each in blocks("python") if "assert " in each[2]], ids=case_id
)
def test_python_block_with_assertions_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    example = tmp_path / "example.py"
    example.write_text(block[2])
    # A file, since the fingerprint reads the source code of functions.
    code = compile(block[2], str(example), "exec")
    exec(code, {"__name__": "example", "__file__": str(example)})


# --- lists ---


def test_every_source_has_a_section():
    headings = set(re.findall(r"^### (\w+)$", text("docs/pipelines.md"), re.MULTILINE))
    assert set(SOURCE_CLASSES) <= headings


def test_every_transform_is_listed_with_its_options():
    listed = {spans(row[0])[0]: row for row in transform_rows()}
    assert set(listed) == set(REGISTRY)
    for name, row in listed.items():
        options = options_of(REGISTRY[name])
        shown = dict(re.match(r"(\w+)(?:: (.*))?", span).groups() for span in spans(row[1]))
        assert shown.keys() == options.keys(), name
        for option, default in shown.items():
            assert_default(f"{name}.{option}", options[option], default)


def test_every_random_transform_is_marked_random():
    random = {spans(row[0])[0] for row in transform_rows() if row[4] == "yes"}
    assert random == {name for name, transform in REGISTRY.items() if transform.always_random}


def transform_rows() -> list[list[str]]:
    part = section("docs/pipelines.md", "## Transforms")
    return rows(part, "transform", "options", "does", "data type and shape", "random")


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("# Pipelines", Pipeline),
        ("## Order", Shuffle),
        ("## Batch", BatchOptions),
        *((f"### {kind}", source) for kind, source in SOURCE_CLASSES.items()),
    ],
    ids=case_id,
)
def test_every_option_is_listed_with_its_default(heading: str, model: type[BaseModel]):
    part = text("docs/pipelines.md") if heading[1] == " " else section("docs/pipelines.md", heading)
    assert_options(rows(part, "option", "type", "default", "meaning"), model)


def test_every_option_of_a_feature_is_listed():
    part = section("docs/pipelines.md", "### tfrecord").partition("A feature is")[2]
    assert_options(rows(part, "option", "type", "default", "meaning"), FeatureOptions)


def assert_options(table: list[list[str]], model: type[BaseModel]) -> None:
    options = options_of(model)
    shown = {spans(row[0])[0]: row[2] for row in table}
    assert shown.keys() == options.keys()
    for option, cell in shown.items():
        default = {"required": None, "none": "null"}.get(cell) or next(iter(spans(cell)), None)
        assert_default(option, options[option], default)


def options_of(model: type[BaseModel]) -> dict[str, Any]:
    """Returns option → default, with the names of the YAML keys."""
    return {field.alias or name: field.default for name, field in model.model_fields.items()}


def assert_default(option: str, default: Any, shown: str | None) -> None:
    """Compares a default with the documented YAML, which is None for a required option."""
    if default is PydanticUndefined:
        assert shown is None, f"{option} is required"
        return
    assert shown is not None, f"{option} is not required"
    value = yaml.safe_load(shown)
    if isinstance(default, BaseModel):
        assert type(default).model_validate(value) == default, option
    else:
        assert value == (list(default) or None if isinstance(default, tuple) else default), option


@pytest.mark.parametrize(
    ("heading", "function"),
    [
        ("## connect", infeed.connect),
        ("## distribute", infeed.tensorflow.distribute),
        ("## Testing without a server", FakeTransport),
    ],
    ids=case_id,
)
def test_every_argument_is_listed_with_its_default(heading: str, function: Any):
    table = rows(section("docs/trainers.md", heading), "option", "default", "meaning")
    shown = {spans(row[0])[0]: row[1] for row in table}
    parameters = inspect.signature(function).parameters
    assert shown.keys() == parameters.keys()
    for name, cell in shown.items():
        default = parameters[name].default
        expected = inspect.Parameter.empty if cell == "required" else eval(spans(cell)[0], {})
        assert expected == default, name


def test_every_member_of_a_feed_is_listed():
    part = section("docs/trainers.md", "## Feed")
    feed = {span.partition("(")[0] for row in rows(part, "member", "is") for span in spans(row[0])}
    assert feed == {name for name in vars(Feed) if not name.startswith("_")}
    batch = {span for row in rows(part, "of a batch", "is") for span in spans(row[0])}
    assert batch == {"start", "epoch", "sample_ids", "mask", "slots"}


def test_every_statistic_is_listed():
    table = rows(section("docs/trainers.md", "## Statistics"), "field", "unit")
    shown = [span for row in table for span in spans(row[0])]
    assert sorted(shown) == sorted(field.name for field in dataclasses.fields(Stats))


def test_every_option_of_an_audit_is_listed_with_its_default():
    page = text("docs/audit.md")
    shown = {spans(row[0])[0]: row[1] for row in rows(page, "option", "default", "meaning")}
    shown = {{"--json": "output"}.get(o, o[2:].replace("-", "_")): d for o, d in shown.items()}
    options = {
        name: option.default
        for name, option in inspect.signature(audit_command).parameters.items()
        if name not in ("target", "pipeline", *inspect.signature(connection).parameters)
    }
    assert shown.keys() == options.keys()
    for name, cell in shown.items():
        assert next(iter(spans(cell)), "None") == str(options[name]), name


def test_every_connection_option_is_listed():
    table = rows(text("docs/security.md"), "option of commands", "environment")
    shown = {spans(row[0])[0][2:].replace("-", "_"): spans(row[1]) for row in table}
    hints = get_type_hints(connection, include_extras=True)
    options = {
        name: hints[name].__metadata__[0] for name in inspect.signature(connection).parameters
    }
    assert shown == {name: [o.envvar] if o.envvar else [] for name, o in options.items()}


def test_every_option_of_the_data_service_is_listed():
    page = text("docs/service.md")

    def listed(command: str) -> list[str]:
        table = rows(page, f"option of `infeed {command}`", "default", "meaning")
        return [spans(row[0])[0] for row in table]

    shown = {name: listed(name) for name in ("serve", "dispatcher", "worker")}
    for name, function in (
        ("dispatcher", data_service.dispatcher),
        ("worker", data_service.worker),
    ):
        options = list(inspect.signature(function).parameters)
        public = [option for option in options if option != "with_parent"]
        assert sorted(shown[name]) == sorted(f"--{option.replace('_', '-')}" for option in public)
    fields = {field.name for field in dataclasses.fields(ServiceOptions)} - {"listen"}
    assert set(shown["serve"]) == {
        "--engine",
        "--dispatcher-listen",
        *(f"--{option.replace('_', '-')}" for option in fields),
    }


def test_every_argument_of_an_audit_is_listed_with_its_default():
    table = rows(text("docs/audit.md"), "argument", "default", "meaning")
    shown = {name: row[1] for row in table for name in spans(row[0])}
    parameters = inspect.signature(audit).parameters
    assert shown.keys() == parameters.keys()
    for name, cell in shown.items():
        default = parameters[name].default
        if cell in ("required", "none"):
            assert default is inspect.Parameter.empty, name
        else:
            assert eval(spans(cell)[0], {}) == default, name


def test_every_number_of_an_audited_epoch_is_listed():
    shown = [s for row in rows(text("docs/audit.md"), "number", "counts") for s in spans(row[0])]
    assert shown == [field.name for field in dataclasses.fields(EpochTotals)]


def test_every_metric_is_listed():
    table = rows(section("docs/deploy.md", "## Metrics"), "name", "type", "labels", "meaning")
    shown = {spans(row[0])[0]: (row[1].partition(",")[0], row[2]) for row in table}
    assert shown.pop("process_*")
    metrics = {}
    for metric in Metrics("1", "2").registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
        if metric.name.startswith("infeed_"):
            metrics[metric.name + suffix] = metric.type.replace("info", "gauge")
    assert {name: kind for name, (kind, _) in shown.items()} == metrics


def test_every_error_is_listed_with_its_reason_and_code():
    table = rows(text("docs/errors.md"), "class", "reason", "gRPC code")
    shown = {spans(row[0])[0]: (spans(row[1])[0], spans(row[2])[0]) for row in table}
    classes = {
        name: value
        for name, value in vars(errors).items()
        if name in errors.__all__ and inspect.isclass(value)
    }
    assert shown == {name: (error.reason, error.code) for name, error in classes.items()}
    also_bases = {
        spans(row[0])[0]: spans(row[1])[0]
        for row in rows(text("docs/errors.md"), "class", "is also")
    }
    assert also_bases == {
        name: error.__bases__[1].__name__
        for name, error in classes.items()
        if len(error.__bases__) > 1
    }


# --- links and commands ---


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub generates for a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_have_a_target(page: str):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    for link in links:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page} links to {link}"


@cache
def help_text(*command: str) -> str:
    """Returns the `--help` of a command."""
    stdout = io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}),
        patch.object(sys, "argv", ["infeed", *command, "--help"]),
        contextlib.redirect_stdout(stdout),
        pytest.raises(SystemExit) as caught,
    ):
        main()
    assert not caught.value.code
    return stdout.getvalue()


def documented_commands() -> dict[str, set[str]]:
    """Returns command → the options that it has on any page."""
    options: dict[str, set[str]] = {}
    for page in PAGES:
        code = [*spans(prose(page)), *(block for _, _, block in blocks(""))]
        for line in "\n".join(code).splitlines():
            command = re.match(r"(?:\S+/)?infeed ([a-z][a-z-]*)\b([^#]*)", line)
            if command:
                options.setdefault(command[1], set()).update(re.findall(r"--[a-z-]+", command[2]))
    return options


@pytest.mark.parametrize("command", sorted(documented_commands()))
def test_documented_command_exists(command: str):
    assert re.search(rf"^\W+{command}\b", help_text(), re.MULTILINE), f"no command {command}"
    for option in documented_commands()[command]:
        assert option in help_text(command), f"infeed {command} has no {option}"


def test_main_commands_are_documented():
    assert {"serve", "peek", "audit", "index"} <= documented_commands().keys()
