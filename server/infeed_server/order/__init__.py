"""The sample order: a pure function of (seed, epoch, position), never stored."""

from infeed_server.order.sample_order import Mode, SampleOrder, Slots

__all__ = ["Mode", "SampleOrder", "Slots"]
