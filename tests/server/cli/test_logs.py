"""The log of commands: formats, levels and the environment of child processes."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.cli import logs
from infeed_server.cli.console import console
from infeed_server.cli.logs import JsonFormatter, LogFormat, LogOptions, TextFormatter
from infeed_server.rpc.log_context import log_fields

LEVELS = ["debug", "info", "warning"]
ZONES = {"UTC0": timedelta(0), "INF+03:30": timedelta(hours=-3, minutes=-30)}


@pytest.fixture
def record() -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": "infeed_server.rpc",
            "levelname": "INFO",
            "msg": "rank %d\nconnected",
            "args": (3,),
            "created": 1763800000.25,
        }
    )


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """Restores what `set_up_logging` changes; yields the root logger."""
    for name in (logs.FORMAT_VARIABLE, logs.LEVEL_VARIABLE):
        monkeypatch.setenv(name, "text")  # so that it is restored
        monkeypatch.delenv(name)
    root = logging.getLogger()
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in ("infeed", "")}
    monkeypatch.setattr(console, "quiet", False)
    yield root
    for logger, level in levels.items():
        logger.setLevel(level)


def test_control_characters_are_escapes(record: logging.LogRecord) -> None:
    record.msg = "cannot read a\x1b[2J.jpg of %d\n\tbecause"
    assert TextFormatter().format(record).endswith(r" a\x1b[2J.jpg of 3" + "\n\tbecause")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_long_records_are_cut(record: logging.LogRecord, formatter: logging.Formatter) -> None:
    record.msg, record.args = "a" * 10_000_000, ()
    try:
        raise KeyError("x" * 10_000_000)
    except KeyError as error:
        record.exc_info = (KeyError, error, error.__traceback__)
    assert len(formatter.format(record)) < 200_000


@pytest.mark.parametrize("zone", ZONES)
def test_time_is_local_with_its_offset(
    record: logging.LogRecord, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        text = TextFormatter().format(record)
        line = json.loads(JsonFormatter().format(record))
    time.tzset()
    assert text == f"{line['time']} INFO rank 3\nconnected"
    parsed = datetime.fromisoformat(line["time"])
    assert parsed.timestamp() == 1763800000.25
    assert parsed.utcoffset() == ZONES[zone]


def test_json_has_the_fields_of_the_current_call(record: logging.LogRecord) -> None:
    record.fields = {"rank": 3}
    token = log_fields.set(lambda: {"peer": "10.0.0.7:5", "feed": "1f2e", "rank": 0})
    inside = json.loads(JsonFormatter().format(record))
    log_fields.reset(token)
    assert [inside[key] for key in ("peer", "feed", "rank")] == ["10.0.0.7:5", "1f2e", 3]
    assert "peer" not in json.loads(JsonFormatter().format(record))


def test_json_is_one_line_with_fields_and_traceback(record: logging.LogRecord) -> None:
    record.fields = {"rank": 3, "peer": "[::1]:7"}
    try:
        raise KeyError("x")
    except KeyError as error:
        record.exc_info = (KeyError, error, error.__traceback__)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    values = json.loads(line)
    assert values.pop("traceback").endswith("KeyError: 'x'")
    assert (values["level"], values["logger"]) == ("info", "infeed_server.rpc")
    assert (values["message"], values["rank"]) == ("rank 3\nconnected", 3)
    assert values["peer"] == "[::1]:7"


@pytest.mark.parametrize(
    ("options", "level"), [({}, "info"), ({"quiet": True}, "warning"), ({"verbose": True}, "debug")]
)
def test_child_processes_get_the_options(
    state: logging.Logger,
    options: dict[str, bool],
    level: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(state, "handlers", [])  # pytest has some
    LogOptions(LogFormat.JSON, **options).set_up()
    assert os.environ[logs.FORMAT_VARIABLE] == "json"
    assert os.environ[logs.LEVEL_VARIABLE] == level
    assert logging.getLevelName(LogOptions().level) == level.upper()
    for item in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger("infeed.x").log(item, "a line")
    lines = [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()]
    assert lines == LEVELS[LEVELS.index(level) :]
    logging.getLogger("another.library").debug("a line")
    assert capsys.readouterr().err == ""


def test_wrong_levels_are_refused(state: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="--quiet and --verbose: mutually exclusive"):
        _ = LogOptions(quiet=True, verbose=True).level
    monkeypatch.setenv(logs.LEVEL_VARIABLE, "loud")
    assert LogOptions(quiet=True).level == logging.WARNING
    with pytest.raises(ConfigError, match="INFEED_LOG_LEVEL=loud: unknown level; use one of debug"):
        _ = LogOptions().level
