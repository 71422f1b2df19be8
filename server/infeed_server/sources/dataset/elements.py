"""Conversion of a user's dataset to flat dicts of named fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed.shared.spec import BYTES, DATA_TYPES

_DEFAULT_NAMES = {
    1: ("features",),
    2: ("features", "label"),
    3: ("features", "label", "sample_weight"),
}


def to_named_fields(
    dataset: tf.data.Dataset, names: Sequence[str] | None, label: str
) -> tf.data.Dataset:
    """Returns the dataset with every element converted to a flat dict of dense tensors.

    A dict keeps its names. The components of a tuple are named by `names`, else features, label
    and sample_weight; a component that is a dict keeps its own names instead. Raises `ConfigError`
    for any other element.
    """
    spec = dataset.element_spec
    names = _component_names(spec, names, label)
    fields = list(_flatten(spec, names, label))
    seen: set[str] = set()
    for name, field_spec in fields:
        if name in seen:
            raise ConfigError(f"{label}: two components of an element are both named {name!r}")
        seen.add(name)
        _check_spec(name, field_spec, label)

    if isinstance(spec, dict) and list(spec.items()) == fields:
        return dataset

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def as_dict(*parts: Any) -> dict[str, tf.Tensor]:
        # tf.data passes a plain tuple as several arguments, and anything else as one.
        return dict(_flatten(parts[0] if len(parts) == 1 else parts, names, label))

    return dataset.map(as_dict)


def _component_names(spec: Any, names: Sequence[str] | None, label: str) -> Sequence[str]:
    if isinstance(spec, Mapping):
        if names is not None:
            raise ConfigError(
                f"{label}: its elements are dicts, which keep their names "
                f"({', '.join(map(str, spec))}); leave out fields"
            )
        return ()
    count = len(spec) if isinstance(spec, tuple) else 1
    if names is None:
        names = getattr(spec, "_fields", None) or _DEFAULT_NAMES.get(count)
    if names is None:
        raise ConfigError(
            f"{label}: its elements are tuples of {count}; name their components with fields: "
            "[...], or return dicts"
        )
    if len(names) != count:
        raise ConfigError(
            f"{label}: fields has {len(names)} names ({', '.join(names)}), but an element has "
            f"{count} components"
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
            raise ConfigError(f"{label}: the name {name!r} in an element is not a string")
        if isinstance(part, Mapping):
            yield from _flatten_dict(part, label)
        else:
            yield name, part


def _check_spec(name: str, spec: Any, label: str) -> None:
    field = f"{label}: field {name!r} of its elements"
    if isinstance(spec, tuple):
        raise ConfigError(f"{field} is a tuple of {len(spec)}; return a dict that names each")
    if isinstance(spec, tf.RaggedTensorSpec):
        raise ConfigError(f"{field} is ragged; make it dense: .to_tensor(shape=...)")
    if isinstance(spec, tf.SparseTensorSpec):
        raise ConfigError(f"{field} is sparse; make it dense: tf.sparse.to_dense(...)")
    if not isinstance(spec, tf.TensorSpec):
        raise ConfigError(f"{field} is a {type(spec).__name__.removesuffix('Spec')}, not a tensor")
    data_type = BYTES if spec.dtype == tf.string else spec.dtype.name
    if data_type not in DATA_TYPES:
        raise ConfigError(f"{field} is {data_type}; supported: {', '.join(DATA_TYPES)}")
