"""Batches of a feed for `fit`, `evaluate` and `predict` on the JAX and torch backends.

On an accelerator Keras takes one batch in advance, which is lost to the next `fit` on the same
feed, unless a `FeedCheckpoint` keeps it, or `steps` ends the generator with the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.keras.feed_reader import reader_of
from infeed.shared.arguments import check_flag, check_integer, check_text, did_you_mean
from infeed.shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from infeed.keras.feed_batches import FeedBatches

DEFAULT_LABEL = "label"
"""The field used as y, if the pipeline has it."""

ToKerasElement = Callable[[dict[str, Any], Any], Any]
"""Arranges the fields and the weights of the slots; applies to tensors and to their specs."""


def generator(
    feed: Feed,
    label: str | None = DEFAULT_LABEL,
    *,
    mask: bool | None = None,
    steps: int | None = None,
    restart: bool = False,
) -> FeedBatches | Generator[Any, None, None]:
    """Returns the feed's batches for one `fit`, `evaluate` or `predict`, or as `validation_data`.

    It is a `keras.utils.PyDataset`, and an iterable for a loop of one's own. If a `FeedCheckpoint`
    of the feed was made before, it is a Python generator, which the callback checks.

    feed     the feed of `infeed.connect`
    label    the field used as y; x is the only other field, or a dict of the others. None, or no
             field "label": x is a dict of all fields, and there is no y
    mask     whether a weight per slot comes last, 0.0 for an empty slot; None: if there can be any
    steps    batches after which it ends; None: with the feed
    restart  whether each iteration begins where the feed began, by a connection of its own; False:
             each batch is given once, and Keras gets an error if it begins again

    Raises `InvalidRequestError` for wrong arguments; the feed's errors leave `fit` as themselves.
    """
    mask = feed.may_mask if mask is None else mask
    names = [field.name for field in feed.element_spec]
    arrange_fields = keras_arranger(names, label, mask, as_tuple=True)
    if steps is not None:
        steps = check_integer("steps", steps, 1, or_none="all batches of the feed")
    if check_flag("restart", restart) and feed.endless:
        raise InvalidRequestError(
            f"restart=True: the feed of {feed.spec.name!r} is endless, so an evaluation of it has "
            "no end; give infeed.connect epochs=1"
        )

    def arrange(batch: Batch) -> Any:
        return arrange_fields(dict(batch), batch.mask.astype("float32"))

    if reader_of(feed).completed is not None and not restart:
        return _tracked(feed, arrange, steps)
    from infeed.keras.feed_batches import FeedBatches  # noqa: PLC0415 - it imports Keras

    return FeedBatches(feed, arrange, steps, restart=restart)


def _tracked(
    feed: Feed, arrange: Callable[[Batch], Any], steps: int | None
) -> Generator[Any, None, None]:
    """Yields the elements of a feed whose training is tracked by a `FeedCheckpoint`.

    The callback ends a continued epoch, after which Keras begins no epoch of a `PyDataset`.
    """
    reader = reader_of(feed)
    reader.steps_per_epoch = None
    iteration = reader.begin(feed, steps, is_generator=True)
    while (batch := reader.take(feed, iteration)) is not None:
        yield arrange(batch)
        del batch


def keras_arranger(
    names: list[str], label: str | None, mask: bool, *, as_tuple: bool = False
) -> ToKerasElement:
    """Returns a function that arranges the fields `names` as Keras takes them.

    The result is `(x, y)`, or with `mask` `(x, y, weights)`; without a label the dict of all fields
    or `(dict, weights)`, with `as_tuple` `(dict,)` or `(dict, None, weights)`.
    """
    check_flag("mask", mask, or_none="weights if slots can be empty")
    if label is not None and check_text("label", label, '"label"') not in (*names, DEFAULT_LABEL):
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
