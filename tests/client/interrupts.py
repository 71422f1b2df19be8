"""Interrupts: exceptions raised at a chosen bytecode, as by a signal handler."""

from __future__ import annotations

import _weakrefset
import dis
import gc
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Set
from functools import partial
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import infeed
from infeed.feed import Feed


class Interrupt(BaseException):
    """Raised at a bytecode."""


def instructions_behind_the_delivery() -> list[dis.Instruction]:
    """Returns the instructions of `Feed.next` from behind the `del` of a batch to the return."""
    instructions = list(dis.get_instructions(Feed.next))
    names = [instruction.opname for instruction in instructions]
    begin = names.index("DELETE_SUBSCR") + 1
    return instructions[begin : names.index("RETURN_VALUE", begin) + 1]


UNREACHABLE = {
    (Feed.next.__code__, instruction.offset) for instruction in instructions_behind_the_delivery()
}
"""Bytecodes at which Python runs no signal handler, by code and offset."""

_FINALIZE = weakref.finalize.__call__.__code__
"""Code that the garbage collector calls, at any time, for a feed that an earlier test has left."""

CLIENT = str(Path(infeed.__file__).parent)


def instructions_at_the_end(function: Callable[..., Any]) -> list[dis.Instruction]:
    """Returns the last instructions, to the return: from behind an assignment with the `del` of a
    batch, in which Python runs no signal handler."""
    instructions = list(dis.get_instructions(function))
    names = [instruction.opname for instruction in instructions]
    begin = names.index("DELETE_SUBSCR")
    while not names[begin - 1].startswith("STORE_"):
        begin -= 1
    return instructions[begin : names.index("RETURN_VALUE", begin) + 1]


def check_that_nothing_is_lost(
    iterator: Any, first_of: Callable[[Any], int], position: Callable[[], int]
) -> int:
    """Interrupts `next` at every bytecode of the client; each time the batch comes all the same.

    `first_of` returns the number of a batch's first sample, and `position` that of the state.
    Returns the number of bytecodes.
    """
    function = inspect.unwrap(type(iterator).__next__)  # Grain wraps it
    ending = instructions_at_the_end(function)
    names = {instruction.opname for instruction in ending}
    assert not any(re.search("CALL|JUMP_B|JUMP_A", name) for name in names)
    unreachable = {(function.__code__, instruction.offset) for instruction in ending} | UNREACHABLE
    for at in count():
        before = position()
        call = partial(function, iterator)
        interrupted = interrupt(call, at, unreachable=unreachable, folder=CLIENT)
        if not interrupted:
            return at
        assert position() == before
        assert first_of(next(iterator)) == before
    raise AssertionError


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
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
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
