"""The user's own part of a traceback."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SITE = sysconfig.get_path("purelib")
_SERVER = str(Path(__file__).parents[1])
_FOREIGN = (
    f"{_SITE}/tensorflow/",
    _SERVER,
    "<frozen importlib",
    f"{sysconfig.get_path('stdlib')}/importlib/",
)
"""Where frames are of no use to the user: TensorFlow, infeed, the import machinery."""

_HEAD = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+.*\n(?:    .*\n)*')


def user_traceback(error: BaseException) -> str:
    """`Traceback (most recent call last): ...` from the first line that is the user's.

    Frames of TensorFlow and of infeed are left out. AutoGraph runs a rewritten copy of the user's
    code; the lines told are those of the original. An error of a `tf.py_function` comes as a
    kernel's error that quotes the traceback; then the quoted one is told.
    """
    quoted = _quoted(str(getattr(error, "message", "")))
    if quoted:
        return quoted
    metadata = getattr(error, "ag_error_metadata", None)
    if metadata is not None:
        frames = _original(metadata.translated_stack)
        last = [metadata.cause_message + "\n"]
    else:
        frames = list(traceback.extract_tb(error.__traceback__))
        last = traceback.format_exception_only(error)
    own = [frame for frame in frames if not frame.filename.startswith(_FOREIGN)]
    return "".join([_HEAD, *traceback.format_list(own), *last]).rstrip()


def _quoted(message: str) -> str:
    """The user's frames of a traceback that stands inside a message; empty when none does."""
    _, head, text = message.replace("\n\n", "\n").partition(_HEAD)
    if not head:
        return ""
    frames = list(_FRAME.finditer(text))
    own = [frame[0] for frame in frames if not frame["file"].startswith(_FOREIGN)]
    last = text[frames[-1].end() :] if frames else text
    return "".join([_HEAD, *own, re.split(r"\s*\[\[|\[Op:", last)[0]]).rstrip()


def _original(stack: Sequence[Any]) -> list[traceback.FrameSummary]:
    # AutoGraph lists the innermost frame first.
    return [
        traceback.FrameSummary(frame.filename, frame.lineno, frame.function_name, line=frame.code)
        for frame in reversed(stack)
    ]
