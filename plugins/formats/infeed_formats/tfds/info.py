"""Description of a folder from TensorFlow Datasets: dataset_info.json and features.json.

Both are Protocol Buffers messages as JSON, where 64-bit numbers are strings.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infeed.shared.errors import SourceError
from infeed_formats.described import check_names, read_description, stamps_below
from infeed_server.storage.stamp import StoredFile

INFO_NAME = "dataset_info.json"
FEATURES_NAME = "features.json"

_WRITER = "TensorFlow Datasets"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


class _Message(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class Split(_Message):
    """A split: its files and the number of records in each."""

    name: str
    shard_lengths: list[int] = []
    filepath_template: str = _TEMPLATE


class Info(_Message):
    """The known properties of a data set."""

    name: str
    file_format: str = "tfrecord"
    splits: list[Split]

    def split(self, name: str) -> Split:
        """Returns a split by its name. Raises `SourceError`."""
        splits = {split.name: split for split in self.splits}
        if name not in splits:
            available = ", ".join(sorted(splits)) or "none"
            raise SourceError(f"{self.name} has no split {name!r}; available: {available}")
        return splits[name]


class _Shape(_Message):
    dimensions: list[int] = []


class Tensor(_Message):
    """Arrays, with -1 for a size that varies; for an image, of the decoded array."""

    dtype: str = ""
    shape: _Shape = _Shape()
    encoding: str = "none"


class _Features(_Message):
    features: dict[str, Node] = Field(min_length=1)


class _Sequence(_Message):
    feature: Node
    length: int = -1


class _Translation(_Message):
    languages: list[str] = []


class Node(_Message):
    """A feature: the message for its kind."""

    python_class_name: str = ""
    features_dict: _Features | None = None
    sequence: _Sequence | None = None
    tensor: Tensor | None = None
    bounding_box: Tensor | None = None
    image: Tensor | None = None
    class_label: Any = None
    text: Any = None
    translation: _Translation | None = None

    @property
    def class_name(self) -> str:
        return self.python_class_name.rpartition(".")[2]


def read_info(folder: str) -> Info:
    """Reads dataset_info.json. Raises `SourceError`."""
    return read_description(f"{folder}/{INFO_NAME}", Info, _WRITER)


def read_features(folder: str) -> Node:
    """Reads features.json. Raises `SourceError`."""
    node = read_description(f"{folder}/{FEATURES_NAME}", Node, _WRITER)
    if node.features_dict is None:
        raise SourceError(
            f"{folder}/{FEATURES_NAME} has no named features, or an old version; write it "
            f"again: tfds.builder_from_directory({folder!r}).info.features.save_config({folder!r})",
            file=f"{folder}/{FEATURES_NAME}",
        )
    return node


def list_shards(folder: str, info: Info, split: Split) -> list[StoredFile]:
    """Returns the files of a split in order. Raises `SourceError`."""
    path = f"{folder}/{INFO_NAME}"
    if info.file_format != "tfrecord":
        raise SourceError(
            f"{path}: the files have the format {info.file_format!r}, which cannot be served; "
            "prepare them as TFRecords (file_format='tfrecord'), or convert them with the command "
            "tfds convert_format --out_file_format=tfrecord",
            file=path,
        )
    count = len(split.shard_lengths)
    if not sum(split.shard_lengths):
        problem = f"the split {split.name!r} has no records; prepare the data set again"
        raise SourceError(f"{path}: {problem}", file=path)
    digits = max(5, len(str(count)))
    names = []
    for number in range(count):
        shard, total = f"{number:0{digits}}", f"{count:0{digits}}"
        name = split.filepath_template.partition("%")[0]  # followed by options of the writer
        variables = {"DATASET": info.name, "SPLIT": split.name, "FILEFORMAT": info.file_format}
        variables |= {"SHARD_INDEX": shard, "NUM_SHARDS": total}
        for variable, value in {**variables, "SHARD_X_OF_Y": f"{shard}-of-{total}"}.items():
            name = name.replace(f"{{{variable}}}", value)
        names.append(name)
    check_names(path, names)
    stamp_of = stamps_below(folder)
    return [StoredFile(f"{folder}/{name}", stamp_of(f"{folder}/{name}")) for name in names]
