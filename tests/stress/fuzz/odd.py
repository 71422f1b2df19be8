"""Odd values at the limits of their types, and messages and bytes that have them."""

from __future__ import annotations

import copy
import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

FLOATS = [0.0, -0.0, 1.0, 255.0, float("nan"), float("inf"), -float("inf"), 1e-320, 1e308]

_UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
_LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def odd_string(rng: random.Random) -> str:
    """Returns an unusual but valid string."""
    return rng.choice(
        [
            "",
            "numbers ",
            "NUMBERS",
            "numbers\0",
            "../../etc/passwd",
            "{0.__class__}%s%n",
            "\u202e\ufeff\U0001f600",
            "a" * rng.choice((100, 5000, 60000)),
            "".join(chr(rng.randrange(0x20, 0xD7FF)) for _ in range(rng.randint(1, 40))),
            "".join(chr(rng.randrange(0, 0x20)) for _ in range(rng.randint(1, 9))),
        ]
    )


def odd_number(rng: random.Random, bits: int = 64) -> int:
    """Returns a signed integer of this many bits, mostly a boundary value."""
    maximum = (1 << (bits - 1)) - 1
    limits = [0, 1, -1, 2, 100, 1 << 16, 1 << 17, (1 << 31) - 1, -(1 << 31)]
    limits += [maximum, -maximum - 1, maximum // 2, maximum // 2 + 1, maximum // 2 + 2]
    value = rng.choice([*limits, *limits, rng.randint(-maximum, maximum)])
    value += rng.choice((0, 0, 0, 1, -1))
    return max(-maximum - 1, min(maximum, value))


def corrupt(rng: random.Random, message: Message) -> None:
    """Gives an odd value to one field of a message or of a message in it, or changes a list."""
    fields: list[FieldDescriptor] = list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = rng.choice(fields)
    value: Any = getattr(message, field.name)
    if isinstance(value, Message):
        corrupt(rng, value)
    elif isinstance(value, bool | int | float | str | bytes):
        setattr(message, field.name, _odd_value(rng, field, value))
    else:
        _corrupt_list(rng, field, value)


def _odd_value(rng: random.Random, field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return odd_string(rng)
    if isinstance(value, bytes):
        return rng.randbytes(rng.randrange(99))
    if isinstance(value, float):
        return rng.choice(FLOATS)
    bits = 64 if field.cpp_type in _LONG else 32
    number = rng.choice((odd_number(rng, bits), value + 1, value - 1, value + 64, 0))
    if field.cpp_type in _UNSIGNED:
        return number % (1 << bits)
    return max(-1 << (bits - 1), min((1 << (bits - 1)) - 1, number))


def _corrupt_list(rng: random.Random, field: FieldDescriptor, value: Any) -> None:
    items = copy.deepcopy(list(value))
    variant = rng.randrange(4)
    if variant == 0:
        rng.shuffle(items)
    elif variant == 1:
        del items[rng.randint(0, len(items)) :]
    elif variant == 2 and items:
        items += [copy.deepcopy(rng.choice(items))] * rng.choice((1, 1, 40, 9999))
    elif field.message_type is None:
        items.append(_odd_value(rng, field, field.default_value or _zero(field)))
    elif items:
        corrupt(rng, rng.choice(items))
    del value[:]
    value.extend(items)


def _zero(field: FieldDescriptor) -> Any:
    """Returns the default of one item of a list, whose own default is the empty list."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return ""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return False
    is_float = field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
    return 0.0 if is_float else 0


def mutate(rng: random.Random, data: bytes, *, max_changes: int = 4) -> bytes:
    """Returns the data with some bytes changed, removed, inserted or repeated."""
    out = bytearray(data)
    for _ in range(rng.randint(1, max_changes)):
        start = rng.randrange(len(out) + 1)
        end = min(len(out), start + rng.choice((1, 1, 1, 2, 4, 8, rng.randint(1, 64))))
        variant = rng.randrange(6)
        if variant == 0 and start < len(out):
            out[start] ^= 1 << rng.randrange(8)
        elif variant == 1 and start < len(out):
            out[start] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif variant == 2:
            del out[start:end]
        elif variant == 3:
            out[start:start] = rng.randbytes(rng.choice((1, 1, 2, 4, 9)))
        elif variant == 4:
            out[start:start] = out[start:end]
        else:
            out[start:end] = rng.randbytes(end - start)
    return bytes(out)


def random_pieces(rng: random.Random, data: bytes, max_pieces: int = 6) -> list[bytes]:
    """Returns the data in at most `max_pieces` pieces, cut at random offsets."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(0, max_pieces - 1)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
