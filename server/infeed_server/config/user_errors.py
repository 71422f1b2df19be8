"""Errors in a user's own functions, with the user's part of the traceback."""

from __future__ import annotations

import contextlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from infeed.shared.errors import UserCodeError, shorten
from infeed_server.config.code_digest import own_packages

_SITE_PACKAGES = sysconfig.get_path("purelib")
_INTERNAL_PATHS = (
    f"{_SITE_PACKAGES}/tensorflow/",
    "<frozen importlib",
    f"{sysconfig.get_path('stdlib')}/importlib/",
)
"""Prefixes of files whose frames are omitted besides infeed's: TensorFlow's, and the importer's."""

_HEADER = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+.*\n(?:    .*\n)*')


@contextlib.contextmanager
def user_errors(
    subject: str,
    *passed: type[BaseException],
    passes: Callable[[BaseException], bool] = lambda _: False,
) -> Iterator[None]:
    """Turns any exception that the user's code in the block raises, even `sys.exit()`, into a
    `UserCodeError`. Errors of the types `passed`, or for which `passes` returns True, stay as they
    are."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, passed) or passes(error):
            raise
        trace = user_traceback(error, skip=2)  # this function's frame, and the block's
        raise UserCodeError(f"{subject} raised {type(error).__name__}:\n{trace}") from error


def user_traceback(error: BaseException, *, skip: int = 0) -> str:
    """Returns `Traceback (most recent call last): ...` without frames of TensorFlow and infeed.
    `skip` is the number of further frames that are infeed's. AutoGraph runs a rewritten copy of the
    user's code; the lines are from the original. An error of a `tf.py_function` is a kernel's error
    that quotes the traceback; the quoted one is returned."""
    message = ""
    with contextlib.suppress(Exception):  # the class may be the user's
        message = shorten(str(getattr(error, "message", "")))
    quoted = _quoted_traceback(message)
    if quoted:
        return quoted
    metadata = vars(error).get("ag_error_metadata")
    if metadata is not None:
        # AutoGraph lists the innermost frame first.
        frames = [
            traceback.FrameSummary(
                frame.filename, frame.lineno, frame.function_name, line=frame.code
            )
            for frame in reversed(metadata.translated_stack)
        ]
        cause = [shorten(metadata.cause_message) + "\n"]
    else:
        frames = list(traceback.extract_tb(error.__traceback__))[skip:]
        cause = [shorten(line) for line in traceback.format_exception_only(error)]
    user_frames = [frame for frame in frames if not _is_internal(frame.filename)]
    return "".join([_HEADER, *traceback.format_list(user_frames), *cause]).rstrip()


def _is_internal(file: str) -> bool:
    own = (Path(sys.modules[name].__path__[0]) for name in own_packages() & sys.modules.keys())
    return file.startswith((*_INTERNAL_PATHS, *(f"{folder}/" for folder in own)))


def _quoted_traceback(message: str) -> str:
    """Returns the user's frames of a traceback within a message; empty without one."""
    _, header, text = message.replace("\n\n", "\n").partition(_HEADER)
    if not header:
        return ""
    frames = list(_FRAME.finditer(text))
    user_frames = [frame[0] for frame in frames if not _is_internal(frame["file"])]
    cause = text[frames[-1].end() :] if frames else text
    return "".join([_HEADER, *user_frames, re.split(r"\s*\[\[|\[Op:", cause)[0]]).rstrip()
