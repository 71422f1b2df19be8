"""The order of samples: computed from (seed, epoch, position), never stored."""

from infeed_server.order.order import Mode, Order, Slots
from infeed_server.order.permutation import Permutation

__all__ = ["Mode", "Order", "Permutation", "Slots"]
