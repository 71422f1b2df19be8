"""Mixup and cutmix: draws for pairs of samples, from which the trainer mixes pixels and labels."""

from __future__ import annotations

from typing import Annotated

import tensorflow as tf
from pydantic import Field, model_validator
from typing_extensions import Self, override

from infeed.shared import spec
from infeed_augment.photometric import require_uint8
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Drawn, FieldName, FieldTransform, Key, RandomTransform

_PARTS = 256
"""Parts of a pixel; whole numbers of them have the same bits in every framework."""

_OWN_SHARE = "lam"

Alpha = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class MixPairs(RandomTransform, FieldTransform):
    """Mixes the samples in slots 2i and 2i + 1 of a batch, and their labels, by mixup or cutmix.

    Result: uint8, and float32 labels; shapes kept.

    Random: yes
    """

    label: FieldName = "label"
    """The field of the labels: float32 with an entry for each class, from an earlier `one_hot`; any
    numbers if `partner` is given."""
    partner: FieldName | None = None
    """A new field, such as `label_b`, for the other sample's label. Labels then stay unmixed, and
    the field `lam` holds the share of a sample's own label."""
    mixup: Alpha | None = None
    """For mixup, alpha of the Beta distribution of a sample's own share."""
    cutmix: Alpha | None = None
    """For cutmix, alpha of the Beta distribution of a sample's own share of the area."""
    probability: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Probability that a pair is mixed."""
    switch: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability of cutmix if both are given."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mixup is None and self.cutmix is None:
            raise ValueError("at least one of mixup and cutmix is required")
        return self

    @property
    def _draws(self) -> str:
        return f"{self.field}.{self.draw_name}"

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        """Adds the draws, which apply if the sample is in an even slot."""
        pixels = require_uint8(self.get_field(sample, self.field), self)
        self.get_field(sample, self.label)
        drawn = self.draw_field(pixels, key)
        rectangle = tf.cast([drawn[name] for name in ("y", "x", "bottom", "right")], tf.float32)
        shares = 1 - tf.stack([drawn["pixels"], drawn["label"]])
        return {**sample, self._draws: tf.concat([shares * [_PARTS, 1], rectangle], 0)}

    @override
    def draw_field(self, x: tf.Tensor, key: Key) -> Drawn:
        """Returns a sample's own share of its pixels outside the rectangle, its own share of the
        label, and the rectangle for the other sample's pixels."""
        height, width, _ = tf.unstack(tf.shape(x))
        chance, choice, y, x_ = tf.unstack(tf.random.stateless_uniform([4], key))
        is_mixed = chance < self.probability
        of_cuts = 0.0 if self.cutmix is None else 1.0 if self.mixup is None else self.switch
        is_cut = is_mixed & (choice < of_cuts)
        own = _beta(key, self.mixup or 1.0)
        own = tf.where(is_mixed & ~is_cut, tf.round(own * _PARTS) / _PARTS, 1.0)
        side = tf.where(is_cut, tf.sqrt(1 - _beta(key, self.cutmix or 1.0)), 0.0)
        top, bottom = _span(height, side, y)
        left, right = _span(width, side, x_)
        area = (bottom - top) * (right - left) / (height * width)
        own_label = tf.where(is_cut, 1 - tf.cast(area, tf.float32), own)
        rectangle = {"y": top, "x": left, "bottom": bottom, "right": right}
        return {"pixels": own, "label": own_label, **rectangle}

    @override
    def fields(self) -> set[str] | None:
        return {self.field, self.label, self._draws}

    @override
    def finish_transform(self) -> spec.MixPairs:
        pair = (self.partner, _OWN_SHARE) if self.partner else ()
        return spec.MixPairs(self.field, self.label, self._draws, *pair)


def draw_shares(key: Key, count: int, alpha: float) -> tf.Tensor:
    """Returns shares whose sum is 1, float64, from the symmetric Dirichlet distribution; with two
    shares, each is Beta(alpha, alpha)."""
    # The shares need their own key, because the numbers of `key` decide what is drawn.
    own_key = tf.random.experimental.stateless_fold_in(key, 0)
    # With a small alpha, all numbers are often too small for float32.
    drawn = tf.random.stateless_gamma([count], own_key, alpha, dtype=tf.float64)
    return tf.math.divide_no_nan(drawn, tf.reduce_sum(drawn))


def _beta(key: Key, alpha: float) -> tf.Tensor:
    return tf.cast(draw_shares(key, 2, alpha)[0], tf.float32)


def _span(length: tf.Tensor, share: tf.Tensor, place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns begin and end of a share of a length, centred at a drawn place and clipped."""
    size = tf.cast(length, tf.float32)
    half = tf.cast(size * share, tf.int32) // 2
    centre = tf.cast(size * place, tf.int32)
    return tf.maximum(centre - half, 0), tf.minimum(centre + half, length)
