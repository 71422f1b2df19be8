"""The description of a folder that TensorFlow Datasets prepared: dataset_info.json, features.json.

They are messages of Protocol Buffers as JSON, where 64-bit numbers are strings.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from infeed.shared.errors import SourceError
from infeed_server.storage.files import read_bytes, stamps_below
from infeed_server.storage.stamp import StoredFile

INFO_NAME = "dataset_info.json"
FEATURES_NAME = "features.json"

_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


class _Message(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class Split(_Message):
    """A split: its files, and the records of each."""

    name: str
    shard_lengths: list[int] = []
    filepath_template: str = _TEMPLATE


class Info(_Message):
    """What is known of a data set."""

    name: str
    file_format: str = "tfrecord"
    splits: list[Split]

    def split(self, name: str) -> Split:
        """Returns a split by its name. Raises `SourceError`."""
        for split in self.splits:
            if split.name == name:
                return split
        available = ", ".join(sorted(split.name for split in self.splits)) or "none"
        raise SourceError(f"{self.name} has no split {name!r}; available: {available}")


class _Shape(_Message):
    dimensions: list[int] = []


class Tensor(_Message):
    """Arrays, -1 for a size that varies; of an image, they are after its decoding."""

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
    """A feature: the message of one of its kinds."""

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


Message = TypeVar("Message", Info, Node)


def read_info(folder: str) -> Info:
    """Reads dataset_info.json. Raises `SourceError`."""
    return _read(folder, INFO_NAME, Info)


def read_features(folder: str) -> Node:
    """Reads features.json. Raises `SourceError`."""
    node = _read(folder, FEATURES_NAME, Node)
    if node.features_dict is None:
        raise SourceError(
            f"{folder}/{FEATURES_NAME} has no features by name, or is of an old version; write it "
            f"again: tfds.builder_from_directory({folder!r}).info.features.save_config({folder!r})",
            file=f"{folder}/{FEATURES_NAME}",
        )
    return node


def _read(folder: str, name: str, model: type[Message]) -> Message:
    path = f"{folder}/{name}"
    try:
        return model.model_validate_json(read_bytes(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "JSON"
        problem = f"is not as TensorFlow Datasets writes it: {place}: {first['msg']}"
        raise SourceError(f"{path} {problem}; prepare the data set again", file=path) from None


def list_shards(folder: str, info: Info, split: Split) -> list[StoredFile]:
    """Returns the files of a split, in their order. Raises `SourceError`."""
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
        problem = f"the split {split.name!r} has no record; prepare the data set again"
        raise SourceError(f"{path}: {problem}", file=path)
    stamp_of = stamps_below(folder)
    digits = max(5, len(str(count)))
    files = []
    for number in range(count):
        shard, total = f"{number:0{digits}}", f"{count:0{digits}}"
        name = split.filepath_template.partition("%")[0]  # followed by options of the writer
        variables = {"DATASET": info.name, "SPLIT": split.name, "FILEFORMAT": info.file_format}
        variables |= {"SHARD_INDEX": shard, "NUM_SHARDS": total}
        for variable, value in {**variables, "SHARD_X_OF_Y": f"{shard}-of-{total}"}.items():
            name = name.replace(f"{{{variable}}}", value)
        if name.startswith("/") or ".." in name.split("/"):
            raise SourceError(f"{path}: {name!r} is outside of the folder", file=path)
        files.append(StoredFile(f"{folder}/{name}", stamp_of(f"{folder}/{name}")))
    if len({file.path for file in files}) < count:
        problem = f"the template {split.filepath_template!r} has one name for several files"
        raise SourceError(f"{path}: {problem}", file=path)
    return files
