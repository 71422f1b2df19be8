"""Tables of the options of pipelines: of the pipeline, its sources and its transforms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_type_hints

from tools.docs.docstrings import (
    attribute_docstring,
    first_paragraph,
    labelled_paragraph,
    required_paragraph,
)
from tools.docs.markdown import Table, cell, code
from tools.docs.option_types import describe_default, describe_type

from infeed_formats.tfrecord.features import FeatureOptions
from infeed_mixtures.definition import MixPart
from infeed_server.config.model import Definition
from infeed_server.pipeline.definition import BatchOptions, Pipeline, Remove, Shuffle
from infeed_server.sources.registry import source_classes
from infeed_server.transforms import Transform, transform_class, transform_names
from infeed_server.transforms.instances import Boxes, Keypoints
from infeed_server.transforms.target import Mask

_MODELS: dict[str, type[Definition]] = {
    "pipeline": Pipeline,
    "shuffle": Shuffle,
    "remove": Remove,
    "batch": BatchOptions,
    "mix-part": MixPart,
    "feature": FeatureOptions,
    **{one.kind: one for one in source_classes() if "of" not in one.model_fields},
}
"""Table → its model. Sources around another, such as `where`, are explained in the text."""

_TARGETS: dict[str, type[Definition]] = {"mask": Mask, "boxes": Boxes, "keypoints": Keypoints}

_TRANSFORM_TABLES = {
    "transforms": ("infeed_server", "infeed_python"),
    "augmentations": ("infeed_augment",),
}
"""Table → the packages whose transforms it has."""


def tables() -> dict[str, Table]:
    """Returns the tables of all definitions by name."""
    columns = ("option", "type", "default", "meaning")
    options = {
        f"options.{name}": Table(columns, list(_option_rows(model).values()))
        for name, model in _MODELS.items()
    }
    transforms = {name: transform_class(name) for name in transform_names()}
    by_package = {
        package: {
            name: transform
            for name, transform in transforms.items()
            if transform.__module__.partition(".")[0] in packages
        }
        for package, packages in _TRANSFORM_TABLES.items()
    }
    return {
        **options,
        "transforms": _transforms(by_package["transforms"]),
        "transform-options": _shared_options("transform", by_package["transforms"]),
        "augmentations": _transforms(by_package["augmentations"]),
        "augmentation-options": _shared_options("transform", by_package["augmentations"]),
        "target-options": _shared_options("target", _TARGETS),
    }


def _option_rows(model: type[Definition]) -> dict[str, tuple[str, ...]]:
    """Returns field → option, type, default and meaning."""
    hints = get_type_hints(model, include_extras=True)
    return {
        name: (
            code(field.alias or name),
            describe_type(hints[name]),
            describe_default(field),
            cell(attribute_docstring(model, name)),
        )
        for name, field in model.model_fields.items()
    }


def _transforms(transforms: Mapping[str, type[Transform]]) -> Table:
    rows = [
        (
            code(name),
            cell(first_paragraph(transform)),
            cell(required_paragraph(transform, "Result")),
            _randomness(transform),
        )
        for name, transform in transforms.items()
    ]
    return Table(("transform", "does", "data type and shape", "random"), rows)


def _shared_options(kind: str, models: Mapping[str, type[Definition]]) -> Table:
    """Returns the options of a kind of models, with one row for all that share an option."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, model in models.items():
        for field, row in _option_rows(model).items():
            if field not in ("field", "given_name"):
                names.setdefault(row, []).append(code(name))
    rows = [(", ".join(equal), *row) for row, equal in names.items()]
    return Table((kind, "option", "type", "default", "meaning"), rows)


def _randomness(transform: type[Transform]) -> str:
    if transform.name.startswith("random_"):
        return "yes"
    return cell(labelled_paragraph(transform, "Random") or "")
