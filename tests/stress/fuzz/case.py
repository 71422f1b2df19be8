"""Fuzz cases, each drawn from the run's seed, its kind and its number, to be repeatable."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Callable[..., object])


@dataclass(frozen=True)
class Case(Generic[K]):
    """Case of a kind, identified by its number."""

    kind: str
    number: int
    draw: K

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"

    def rng(self, seed: int) -> random.Random:
        return random.Random(f"{seed} {self}")


@dataclass
class Kinds(Generic[K]):
    """Registry of functions that draw cases, by name, with their relative frequencies."""

    known: dict[str, K] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, weight: float = 1.0) -> Callable[[K], K]:
        def register(draw: K) -> K:
            name = draw.__name__.replace("_", "-")
            self.known[name], self.weights[name] = draw, weight
            return draw

        return register

    def cases(self, count: int) -> Iterator[Case[K]]:
        """Yields at least `count` cases, the kinds evenly mixed and each at least once."""
        total = sum(self.weights.values())
        order = []
        for name, weight in self.weights.items():
            share = math.ceil(count * weight / total)
            order += [((number + 0.5) / share, name, number) for number in range(share)]
        for _, name, number in sorted(order):
            yield Case(name, number, self.known[name])

    def case(self, name: str) -> Case[K]:
        """Returns the case with this `str(case)`. Raises `KeyError` for an unknown kind."""
        kind, _, number = name.partition(":")
        return Case(kind, int(number or 0), self.known[kind])


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
