"""Order of mixtures: the processor time of a position in blocks, beside an order without parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target

from infeed_mixtures.mixture import Mixture
from infeed_mixtures.order import MixedOrder
from infeed_server.order import SampleOrder
from infeed_server.order.permutation import Positions

PARTS = (2, 8, 64, 256)
BLOCK, BLOCKS = 1024, 40
"""Positions per request, and the number of requests."""

Ask = Callable[[Positions], object]


def compare(plan: Plan) -> list[Finding]:
    """Times the parts and draws, then the samples, of positions that were not requested before."""
    most = Target(1.0, "at most", "figure", is_aim=True)
    plain = Figures("global order", _microseconds(SampleOrder(10**6, 3, "global").visited, plan))
    found = []
    for parts in PARTS:
        order = _order(parts)
        turns = Figures("infeed", _microseconds(order.turns_at, plan))
        samples = Figures("infeed", _microseconds(order.visited, plan))
        about = f"{parts} parts with weights of 1 to 1/{parts}, blocks of {BLOCK}"
        found.append(Finding(f"µs a position, {parts} parts", turns, None, most, False, about))
        found.append(Finding(f"µs a sample, {parts} parts", samples, plain, None, False, about))
    return found


def _order(parts: int) -> MixedOrder:
    names = tuple(f"part{number}" for number in range(parts))
    weights = tuple(Fraction(1000 // (number + 1) or 1) for number in range(parts))
    mixture = Mixture(names, (0,), (weights,), BLOCK)
    sizes = (100_000,) * parts
    return MixedOrder(count=1 << 40, seed=3, mode="global", mixture=mixture, sizes=sizes)


def _microseconds(ask: Ask, plan: Plan) -> list[float]:
    """Returns the processor time of a position of each run; the first run is not counted."""
    found = []
    for run in range(plan.pairs + 1):
        first = 10**9 // BLOCK + run * BLOCKS
        begin = time.thread_time()
        for block in range(first, first + BLOCKS):
            ask(np.arange(block * BLOCK, (block + 1) * BLOCK))
        found.append((time.thread_time() - begin) * 1e6 / BLOCK / BLOCKS)
    return found[1:]
