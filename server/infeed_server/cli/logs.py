"""The log of a command on standard error, as text or JSON, with options for format and level.

A record may carry `fields`, a mapping of values that its message also contains; in JSON they are
keys of their own: `log.info("...", extra={"fields": {"rank": 3}})`. Lines logged during a trainer's
call also carry the call's fields.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from rich.logging import RichHandler
from rich.text import Text
from typing_extensions import override

from infeed.cli.model_options import option
from infeed.shared.errors import ConfigError, shorten
from infeed.shared.printable import printable_lines
from infeed_server.cli.console import console
from infeed_server.imports import LOG_LEVEL
from infeed_server.rpc.log_context import log_fields

FORMAT_VARIABLE = "INFEED_LOG_FORMAT"
LEVEL_VARIABLE = "INFEED_LOG_LEVEL"
"""Environment variables that pass the options to a command's child processes."""

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_PACKAGES = ("infeed", "infeed_server")


class LogFormat(str, Enum):
    """The values of `--log-format`."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class LogOptions:
    """Log options of a serving command; the processes that it starts take them from the
    environment."""

    log_format: LogFormat = option(
        LogFormat.TEXT,
        "Log format: text, or json with one object per line.",
        envvar=FORMAT_VARIABLE,
    )
    quiet: bool = option(False, "Log only warnings and errors.")
    verbose: bool = option(False, "Also log details of connections.")

    @property
    def level(self) -> int:
        """The level from these options, or else from the environment. Raises `ConfigError`."""
        if self.quiet and self.verbose:
            raise ConfigError("--quiet and --verbose: mutually exclusive; give only one")
        if self.quiet or self.verbose:
            return logging.WARNING if self.quiet else logging.DEBUG
        name = os.environ.get(LEVEL_VARIABLE) or "info"
        if name not in _LEVELS:
            raise ConfigError(
                f"{LEVEL_VARIABLE}={name}: unknown level; use one of {', '.join(_LEVELS)}"
            )
        return _LEVELS[name]

    def set_up(self) -> None:
        """Sets up the log. Raises `ConfigError`."""
        level = self.level
        os.environ[FORMAT_VARIABLE] = self.log_format.value
        os.environ[LEVEL_VARIABLE] = logging.getLevelName(level).lower()
        set_up_logging(self.log_format, level)


def set_up_logging(log_format: LogFormat = LogFormat.TEXT, level: int = logging.INFO) -> None:
    """Sets up the log on standard error, and makes TensorFlow log only errors: it reads the
    environment on import, which comes later in every command. infeed's server uses no accelerators,
    so a search for them would only cost time and log lines."""
    os.environ.setdefault(LOG_LEVEL, "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    is_plain = log_format is LogFormat.JSON or level > logging.INFO
    console.quiet = is_plain
    if is_plain or not console.is_terminal:
        handler: logging.Handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    else:
        handler = RichHandler(console=console, show_path=False, log_time_format=_rich_time)
        handler.setFormatter(MessageFormatter())
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler])
    if level < logging.INFO:
        for package in _PACKAGES:
            logging.getLogger(package).setLevel(level)


class MessageFormatter(logging.Formatter):
    """Messages of bounded length, without the control characters that file names can contain."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(shorten(super().format(record)))


class TextFormatter(MessageFormatter):
    """Lines of time, level and message. Never wraps them: log collectors split at line ends."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    @override
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _iso_time(record.created)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, fields and traceback."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _iso_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shorten(record.getMessage()),
            **log_fields.get()(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = shorten(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def _iso_time(seconds: float) -> str:
    """Returns the local time with its offset from UTC, in ISO 8601."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def _rich_time(time: datetime) -> Text:
    return Text(time.astimezone().isoformat(timespec="seconds"))
