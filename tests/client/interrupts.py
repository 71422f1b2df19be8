"""Interrupts: exceptions raised at a chosen bytecode, as by a signal handler."""

from __future__ import annotations

import _weakrefset
import dis
import sys
from collections.abc import Callable
from types import FrameType
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


UNREACHABLE = {(Feed.next.__code__, each.offset) for each in instructions_behind_the_delivery()}
"""Bytecodes at which Python runs no signal handler, by code and offset."""


def interrupt(call: Callable[[], Any], at: int) -> bool:
    """Calls a function and raises `Interrupt` at the bytecode number `at` of it and its callees.

    Returns False if the function had fewer, and so was not interrupted.
    """
    left = at

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if frame.f_code.co_filename == _weakrefset.__file__:
            return None  # a callback of the garbage collector, where Python ignores exceptions
        if event == "opcode" and (frame.f_code, frame.f_lasti) not in UNREACHABLE:
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
