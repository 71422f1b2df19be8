"""AugMix: chains of drawn operations on a picture, blended with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import tensorflow as tf
from pydantic import Field
from typing_extensions import override

from infeed_augment.mix_pairs import draw_shares
from infeed_augment.policies import BLENDS, IDENTITY, Policy
from infeed_augment.warp import Interpolation
from infeed_server.transforms.base import Drawn, Key

_DEEPEST = 3
"""Maximum of operations in a chain if their number is drawn."""

_STRENGTHS = 10

_PARTS = 1 << 16
"""Parts of a picture's weight; products with bytes and their sum stay exact in float32."""


class AugMix(Policy):
    """Applies chains of drawn operations, weak versions of those in `rand_augment`, to a picture,
    and blends the results with it.

    Result: uint8; shape kept.

    Random: yes
    """

    limits: ClassVar[tuple[float, ...]] = (0.3, 30.0, 0.9, 4.0)
    bits: ClassVar[int] = 4

    interpolation: Interpolation = "bilinear"
    """How the values of a moved picture are interpolated."""
    severity: Annotated[int, Field(ge=1, le=_STRENGTHS)] = 3
    """Number of equally likely strengths, from the weakest of ten."""
    width: Annotated[int, Field(ge=1, le=8)] = 3
    """Number of chains."""
    depth: Annotated[int, Field(ge=1, le=8)] | None = None
    """Number of operations in each chain; by default drawn from 1 to 3."""
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Concentration of the Dirichlet distribution for the chains' shares, and of the Beta
    distribution for the original picture's share."""
    all_operations: bool = True
    """Whether brightness, color, contrast and sharpness are among the operations."""

    @property
    def _longest_chain(self) -> int:
        return self.depth or _DEEPEST

    @property
    @override
    def count(self) -> int:
        return self.width * self._longest_chain

    @property
    @override
    def choices(self) -> Sequence[int]:
        left_out = [IDENTITY] if self.all_operations else [IDENTITY, *BLENDS]
        return [n for n in super().choices if n not in left_out]

    @override
    def level(self, numbers: tf.Tensor) -> tf.Tensor:
        return tf.floor(numbers * self.severity) * (1 / (_STRENGTHS - 1))

    @override
    def longest(self, size: tf.Tensor) -> tf.Tensor:
        return size * (1 / 3)

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        """Returns the operations, which are the identity after a chain's end, and the shares of the
        picture, `share`, and of each chain."""
        drawn = super().draw_shape(shape, key)
        of_own, of_chains, of_depths = (
            tf.random.experimental.stateless_fold_in(key, number) for number in (1, 2, 3)
        )
        own, others = tf.unstack(draw_shares(of_own, 2, self.alpha))
        chains = draw_shares(of_chains, self.width, self.alpha) * others
        # Whole numbers of parts, whose sum is `_PARTS`.
        ends = tf.cumsum(tf.concat([[own], chains[:-1]], 0))
        limits = tf.concat([[0.0], tf.round(tf.cast(ends, tf.float32) * _PARTS), [_PARTS]], 0)
        shares = (limits[1:] - limits[:-1]) / _PARTS
        depths = tf.random.stateless_uniform([self.width], of_depths, 1, _DEEPEST + 1, tf.int32)
        for chain in range(self.width):
            drawn[f"share{chain}"] = shares[chain + 1]
            for place in range(1, 1 if self.depth else _DEEPEST):
                for name, end in (("operation", IDENTITY), ("magnitude", 0.0)):
                    of_place = f"{name}{chain * _DEEPEST + place}"
                    drawn[of_place] = tf.where(place < depths[chain], drawn[of_place], end)
        return {"share": shares[0], **drawn}

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        if nearest:
            raise self._not_moved()
        operate = self.operation(drawn)
        mixed = drawn["share"] * tf.cast(pixels, tf.float32)
        for chain in range(self.width):
            changed = pixels
            for place in range(self._longest_chain):
                changed = operate(changed, chain * self._longest_chain + place)
            mixed += drawn[f"share{chain}"] * tf.cast(changed, tf.float32)
        return tf.cast(mixed, tf.uint8)

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        raise self._not_moved()

    def _not_moved(self) -> Exception:
        return self.error(
            f"blends pictures moved in different ways, so targets of {self.field!r} cannot move "
            "along; use rand_augment, or leave out the targets"
        )
