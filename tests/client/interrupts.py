"""Interrupts: exceptions raised at a chosen bytecode, as by a signal handler."""

from __future__ import annotations

import _weakrefset
import dis
import gc
import sys
import weakref
from collections.abc import Callable, Set
from types import CodeType, FrameType
from typing import Any

from infeed.feed import Feed


class Interrupt(BaseException):
    """Raised at a bytecode."""


def instructions_behind_the_delivery() -> list[dis.Instruction]:
    """Returns the instructions of `Feed.next` from behind the `del` of a batch to the return."""
    instructions = list(dis.get_instructions(Feed.next))
    names = [instruction.opname for instruction in instructions]
    begin = names.index("DELETE_SUBSCR") + 1
    return instructions[begin : names.index("RETURN_VALUE", begin) + 1]


UNREACHABLE = {(Feed.next.__code__, code.offset) for code in instructions_behind_the_delivery()}
"""Bytecodes at which Python runs no signal handler, by code and offset."""

_FINALIZE = weakref.finalize.__call__.__code__
"""Code that the garbage collector calls, at any time, for a feed that an earlier test has left."""


def interrupt(
    call: Callable[[], Any],
    at: int,
    *,
    unreachable: Set[tuple[CodeType, int]] = UNREACHABLE,
    folder: str = "",
) -> bool:
    """Calls a function and raises `Interrupt` at the bytecode number `at` of it and its callees.

    Counts only bytecodes of code in the folder. Returns False if the function had fewer, and so was
    not interrupted.
    """
    left = at

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        # The function first: Python 3.14 else traces opcodes only from the next call on.
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = trace, True, False
        if event == "call" and _is_in_callback(frame):
            return None
        if not frame.f_code.co_filename.startswith(folder):
            return None
        if event == "opcode" and (frame.f_code, frame.f_lasti) not in unreachable:
            left -= 1
            if left < 0:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def _is_in_callback(frame: FrameType | None) -> bool:
    """Returns whether the garbage collector runs a frame, where Python ignores exceptions."""
    # Hypothesis, for one, measures the collector's time.
    callbacks = {_FINALIZE, *(getattr(call, "__code__", None) for call in gc.callbacks)}
    while frame is not None:
        if frame.f_code in callbacks or frame.f_code.co_filename == _weakrefset.__file__:
            return True
        frame = frame.f_back
    return False
