"""The sample order: a pure function of (seed, epoch, position), never stored."""

from infeed_server.order.sample_order import MAX_SEED, Mode, SampleOrder, Slots

__all__ = ["MAX_SEED", "Mode", "SampleOrder", "Slots"]
