"""Keras elements: batches as `(x, y)` or `(x, y, weights)`; empty slots are cut or weighted 0."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.arguments import check_flag, check_integer, check_text, did_you_mean
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array
from infeed_frameworks.named_fields import NamedFields

log = logging.getLogger(__name__)

DEFAULT_LABEL = "label"
"""The field used as y, if the pipeline has it."""

ClassWeight = Mapping[int, float]

ToKerasElement = Callable[[dict[str, Any], Any], Any]
"""Arranges the fields and the weights of the slots; applies to tensors and to their specs."""


class KerasElements:
    """Makes elements of a feed's batches. Raises `InvalidRequestError` for wrong arguments."""

    def __init__(
        self,
        feed: Feed,
        label: str | None,
        *,
        mask: bool,
        ids: str | None = None,
        part: str | None = None,
        class_weight: ClassWeight | None = None,
        as_tuple: bool = False,
    ) -> None:
        self._name, self._label, self._parts = feed.spec.name, label, feed.spec.parts
        check_flag("mask", mask)
        self._named = NamedFields(ids, part=part)
        self.spec = self._named.spec(feed)
        fields = {field.name: field for field in self.spec}
        weighted = mask or class_weight is not None
        self.arrange = keras_arranger([*fields], label, weighted, as_tuple=as_tuple)
        self.is_cut = feed.may_mask and not mask
        """Whether an element can have fewer slots than the feed's batches."""
        self._as_tuple = as_tuple
        self._class_weight = class_weight
        if class_weight is not None:
            for number in class_weight:
                check_integer("class_weight", number, 0)
            if label not in fields or len(fields[label].shape) > 1:
                raise InvalidRequestError(
                    f"class_weight needs one class per sample, which {label!r} of {self._name!r} "
                    "does not hold; leave it out, or name the field of the classes with label"
                )
        self._has_warned = False

    def __call__(self, batch: Batch) -> Any:
        fields, weights = self._named.slots(batch, self._parts), batch.mask.astype("float32")
        if not batch.mask.all():
            if self.is_cut:
                self._require_samples(batch)
                fields = {name: array[batch.mask] for name, array in fields.items()}
                weights = weights[batch.mask]
            else:
                self._warn()
        if self._class_weight is not None:
            weights *= _weights_of_classes(fields[self._label or ""], self._class_weight)
        return self.arrange(fields, weights)

    def _require_samples(self, batch: Batch) -> None:
        # TensorFlow accepts a batch without rows; on JAX and torch its mean is NaN.
        if self._as_tuple and not batch.mask.any():
            raise InvalidRequestError(
                f"the batch at position {batch.start} of {self._name!r} has only empty slots, "
                "which are cut, so no sample is left; use infeed.keras.generator(feed, mask=True), "
                "or for bad samples set on_error: substitute in the pipeline"
            )

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: a batch has empty slots, which mask=True keeps. Only "
                "compile(weighted_metrics=...) ignores them; other metrics, the loss and predict "
                "count them. With mask=False they are cut, and all of these are exact",
                self._name,
            )


def keras_arranger(
    names: list[str], label: str | None, weighted: bool, *, as_tuple: bool = False
) -> ToKerasElement:
    """Returns a function that arranges the fields `names` as Keras expects them.

    The result is `(x, y)`, or `(x, y, weights)`; without a label the dict of all fields or
    `(dict, weights)`, with `as_tuple` `(dict,)` or `(dict, None, weights)`.
    """
    if label is not None and check_text("label", label, '"label"') not in (*names, DEFAULT_LABEL):
        raise InvalidRequestError(
            f"label={label!r}: the pipeline has no such field{did_you_mean(label, names)}; "
            f"fields: {', '.join(names)}; label=None gives dicts of all fields",
            label=label,
        )
    if label is None or label not in names:
        if as_tuple:
            return lambda x, weights: (x, None, weights) if weighted else (x,)
        return lambda x, weights: (x, weights) if weighted else x
    inputs = [name for name in names if name != label]
    if not inputs:
        raise InvalidRequestError(
            f"the pipeline's only field is {label!r}, so there is no input; pass label=None"
        )

    def arrange(fields: dict[str, Any], weights: Any) -> Any:
        x = fields[inputs[0]] if len(inputs) == 1 else {name: fields[name] for name in inputs}
        return (x, fields[label], weights) if weighted else (x, fields[label])

    return arrange


def _weights_of_classes(labels: Array, class_weight: ClassWeight) -> Array:
    """Returns a weight for each slot, 1 for a class without one. Labels are numbers or one-hot."""
    if labels.ndim > 1:
        labels = labels.argmax(-1) if labels.shape[-1] > 1 else labels[:, 0]
    weights = np.ones(len(labels), np.float32)
    for number, weight in class_weight.items():
        weights[np.round(labels) == number] = weight
    return weights
