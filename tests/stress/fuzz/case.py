"""Cases: each is drawn from the run's seed, its kind and its number, so that it can be run again
alone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Callable[..., object])


@dataclass(frozen=True)
class Case(Generic[K]):
    """Number `number` of a kind."""

    kind: str
    number: int
    draw: K

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"

    def rng(self, seed: int) -> random.Random:
        return random.Random(f"{seed} {self}")


@dataclass
class Kinds(Generic[K]):
    """Functions that draw cases, by name; of `weight` many come for each one of weight 1."""

    known: dict[str, K] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, weight: float = 1.0) -> Callable[[K], K]:
        def register(draw: K) -> K:
            name = draw.__name__.replace("_", "-")
            self.known[name], self.weights[name] = draw, weight
            return draw

        return register

    def cases(self, count: int) -> Iterator[Case[K]]:
        """At least so many, the kinds mixed evenly; each kind comes once at least."""
        total = sum(self.weights.values())
        due = []
        for name, weight in self.weights.items():
            share = math.ceil(count * weight / total)
            due += [((number + 0.5) / share, name, number) for number in range(share)]
        for _, name, number in sorted(due):
            yield Case(name, number, self.known[name])

    def case(self, name: str) -> Case[K]:
        """From what `str(case)` gave. Raises `KeyError`."""
        kind, _, number = name.partition(":")
        return Case(kind, int(number or 0), self.known[kind])


def mutated(rng: random.Random, data: bytes, *, most: int = 4) -> bytes:
    """The data with some bytes flipped, cut out, put in or said twice."""
    out = bytearray(data)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice((1, 1, 1, 2, 4, 8, rng.randint(1, 64))))
        way = rng.randrange(6)
        if way == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif way == 1 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif way == 2:
            del out[at:end]
        elif way == 3:
            out[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 9)))
        elif way == 4:
            out[at:at] = out[at:end]
        else:
            out[at:end] = rng.randbytes(end - at)
    return bytes(out)


def pieces(rng: random.Random, data: bytes, most: int = 6) -> list[bytes]:
    """The data, cut anywhere into up to so many pieces."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(0, most - 1)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def pick(rng: random.Random, *choices: Sequence[object]) -> object:
    """One of the values of one of the sequences."""
    return rng.choice(list(rng.choice(choices)))
