"""The sample order: a pure function of (seed, epoch, position), never stored."""

from infeed_server.order.removed import NOTHING, Removed
from infeed_server.order.run_order import MAX_POSITION, RunOrder
from infeed_server.order.sample_order import MAX_SEED, Mode, SampleOrder, Slots

__all__ = [
    "MAX_POSITION", "MAX_SEED", "NOTHING", "Mode", "Removed", "RunOrder", "SampleOrder", "Slots",
]  # fmt: skip
