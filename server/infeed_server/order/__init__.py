"""The sample order: a pure function of (seed, epoch, position), never stored."""

from infeed_server.order.removed import NOTHING, Removed
from infeed_server.order.run_order import RunOrder, as_run
from infeed_server.order.sample_order import MAX_SEED, Mode, SampleOrder, Slots

Order = SampleOrder | RunOrder

__all__ = [
    "MAX_SEED", "NOTHING", "Mode", "Order", "Removed", "RunOrder", "SampleOrder", "Slots", "as_run",
]  # fmt: skip
