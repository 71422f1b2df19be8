"""A writer of folders as TensorFlow Datasets prepares them, from their description."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.tfrecords import example, write_records

FEATURES = "tensorflow_datasets.core.features"


def feature(class_name: str, **message: Any) -> dict[str, Any]:
    return {"pythonClassName": f"{FEATURES}.{class_name}", **message}


def tensor(dtype: str, *sizes: int, encoding: str = "none") -> dict[str, Any]:
    shape = {"dimensions": [str(size) for size in sizes]} if sizes else {}
    message = {"dtype": dtype, "shape": shape, "encoding": encoding}
    return feature("tensor_feature.Tensor", tensor=message)


def sequence(of: Mapping[str, Any], length: int = -1) -> dict[str, Any]:
    message = {"feature": of, "length": str(length)}
    return feature("sequence_feature.Sequence", sequence=message)


def features_dict(features: Mapping[str, Any]) -> dict[str, Any]:
    return feature("features_dict.FeaturesDict", featuresDict={"features": features})


IMAGE = feature("image_feature.Image", image={"shape": {"dimensions": ["-1", "-1", "3"]}})
LABEL = feature("class_label_feature.ClassLabel", classLabel={"numClasses": "2"})
TEXT = feature("text_feature.Text", text={})


def write_tfds(
    folder: Path,
    features: Mapping[str, Any],
    splits: Mapping[str, Sequence[Sequence[Mapping[str, list[Any]]]]],
    template: str = "",
) -> None:
    """Writes the splits, each as the records of its files; `template` names the files, if given."""
    folder.mkdir(parents=True, exist_ok=True)
    described = []
    for name, shards in splits.items():
        lengths = [str(len(shard)) for shard in shards]
        split: dict[str, Any] = {"name": name, "shardLengths": lengths, "numBytes": "1"}
        if template:
            split["filepathTemplate"] = template
        described.append(split)
        for number, shard in enumerate(shards):
            of = f"{number:05}-of-{len(shards):05}"
            file = f"small-{name}.tfrecord-{of}"
            if template:
                file = template.replace("{SPLIT}", name).replace("{SHARD_INDEX}", f"{number:05}")
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            write_records(folder / file, [example(values) for values in shard])
    info = {"name": "small", "version": "1.0.0", "fileFormat": "tfrecord", "splits": described}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(features_dict(features)))
    if "label" in features:
        (folder / "label.labels.txt").write_text("cat\ndog\n")
