"""The elements of a user's dataset, as dicts of named fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from infeed.errors import ConfigError
from infeed.spec import BYTES, DATA_TYPES

_DEFAULT_NAMES = {
    1: ("features",),
    2: ("features", "label"),
    3: ("features", "label", "sample_weight"),
}


def named(dataset: tf.data.Dataset, names: Sequence[str] | None, label: str) -> tf.data.Dataset:
    """The dataset with every element a flat dict of dense tensors.

    A dict keeps its names; a tuple's places are named by `names`, else features, label and
    sample_weight; a dict inside a tuple puts its own names in place of that one. Raises
    `ConfigError` for elements that fit none of this.
    """
    spec = dataset.element_spec
    names = _names(spec, names, label)
    fields = list(_flatten(spec, names, label))
    seen: set[str] = set()
    for name, field in fields:
        if name in seen:
            raise ConfigError(f"{label}: two parts of an element are both named {name!r}")
        seen.add(name)
        _check(name, field, label)

    if isinstance(spec, dict) and list(spec.items()) == fields:
        return dataset

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def as_dict(*parts: Any) -> dict[str, tf.Tensor]:
        # tf.data spreads a plain tuple over the arguments, and gives anything else as one.
        return dict(_flatten(parts[0] if len(parts) == 1 else parts, names, label))

    return dataset.map(as_dict)


def _names(spec: Any, names: Sequence[str] | None, label: str) -> Sequence[str]:
    if isinstance(spec, Mapping):
        if names is not None:
            raise ConfigError(
                f"{label}: its elements are dicts, which keep their names "
                f"({', '.join(map(str, spec))}); leave out fields"
            )
        return ()
    places = len(spec) if isinstance(spec, tuple) else 1
    if names is None:
        names = getattr(spec, "_fields", None) or _DEFAULT_NAMES.get(places)
    if names is None:
        raise ConfigError(
            f"{label}: its elements are tuples of {places}; name their places with fields: "
            "[...], or return dicts"
        )
    if len(names) != places:
        raise ConfigError(
            f"{label}: fields names {len(names)} places ({', '.join(names)}), but an element has "
            f"{places}"
        )
    return names


def _flatten(element: Any, names: Sequence[str], label: str) -> Iterable[tuple[str, Any]]:
    if isinstance(element, Mapping):
        yield from _flatten_dict(element, label)
    elif not isinstance(element, tuple):
        yield names[0], element
    else:
        for name, part in zip(names, element, strict=True):
            if isinstance(part, Mapping):
                yield from _flatten_dict(part, label)
            else:
                yield name, part


def _flatten_dict(element: Mapping[Any, Any], label: str) -> Iterable[tuple[str, Any]]:
    for name, part in element.items():
        if not isinstance(name, str):
            raise ConfigError(f"{label}: the name {name!r} of a part of an element is no text")
        if isinstance(part, Mapping):
            yield from _flatten_dict(part, label)
        else:
            yield name, part


def _check(name: str, spec: Any, label: str) -> None:
    where = f"{label}: field {name!r} of its elements"
    if isinstance(spec, tuple):
        raise ConfigError(f"{where} is a tuple of {len(spec)}; return a dict that names each")
    if isinstance(spec, tf.RaggedTensorSpec):
        raise ConfigError(f"{where} is ragged; make it dense: .to_tensor(shape=...)")
    if isinstance(spec, tf.SparseTensorSpec):
        raise ConfigError(f"{where} is sparse; make it dense: tf.sparse.to_dense(...)")
    if not isinstance(spec, tf.TensorSpec):
        raise ConfigError(f"{where} is a {type(spec).__name__.removesuffix('Spec')}, no tensor")
    data_type = BYTES if spec.dtype == tf.string else spec.dtype.name
    if data_type not in DATA_TYPES:
        raise ConfigError(f"{where} is {data_type}; it can be: {', '.join(DATA_TYPES)}")
