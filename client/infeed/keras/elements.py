"""Elements of a dataset as Keras takes them: inputs, targets and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infeed.shared.arguments import check_flag, check_text, did_you_mean
from infeed.shared.errors import InvalidRequestError

DEFAULT_LABEL = "label"
"""The field used as y, if the pipeline has it."""

ToKerasElement = Callable[[dict[str, Any], Any], Any]
"""Arranges the fields and the weights of the slots; applies to tensors and to their specs."""


def keras_arranger(
    names: list[str], label: str | None, mask: bool, *, as_tuple: bool = False
) -> ToKerasElement:
    """Returns a function that arranges the fields `names` as Keras takes them.

    The result is `(x, y)`: y is the field `label`, x the only other field or a dict of the others.
    If `label` is None, or the default and no such field exists, it is the dict of all, or with
    `as_tuple` `(dict,)`. With `mask` the weights come last: `(x, y, weights)` or `(dict, weights)`,
    with `as_tuple` `(dict, None, weights)`.

    Raises `InvalidRequestError` for another label that is no field, or is the only one.
    """
    check_flag("mask", mask, or_none="weights if slots can be empty")
    if label is not None and check_text("label", label) not in (*names, DEFAULT_LABEL):
        raise InvalidRequestError(
            f"label={label!r}: the pipeline has no such field{did_you_mean(label, names)}; "
            f"fields: {', '.join(names)}; label=None gives dicts of all fields",
            label=label,
        )
    if label is None or label not in names:
        if as_tuple:
            return lambda x, weights: (x, None, weights) if mask else (x,)
        return lambda x, weights: (x, weights) if mask else x
    inputs = [name for name in names if name != label]
    if not inputs:
        raise InvalidRequestError(
            f"the pipeline has no field except {label!r}, so none is left as input; pass label=None"
        )

    def arrange(fields: dict[str, Any], weights: Any) -> Any:
        x = fields[inputs[0]] if len(inputs) == 1 else {name: fields[name] for name in inputs}
        return (x, fields[label], weights) if mask else (x, fields[label])

    return arrange
