"""Drafts of pipelines for folders of TensorFlow Datasets."""

from __future__ import annotations

from collections.abc import Iterator

from infeed.shared.errors import SourceError
from infeed_formats.tfds.features import Leaves
from infeed_formats.tfds.info import INFO_NAME, list_shards, read_features, read_info
from infeed_formats.tfrecord.preview import parse_example, read_first
from infeed_formats.tfrecord.starter import SAMPLES_READ
from infeed_tools.init.draft import Draft
from infeed_tools.init.drafter import Drafter
from infeed_tools.init.listing import Files, pipeline_name


def _tfds(data: Files) -> Iterator[Draft]:
    """Yields a draft for each split of a folder of TensorFlow Datasets."""
    (folder,) = data.files
    info, leaves = read_info(folder), Leaves.of(read_features(folder))
    leaves.require_lengths({})
    if not leaves.found:
        raise SourceError(f"{folder}: no feature that can be served: {leaves.left_out}")
    for split in info.splits:
        source = {"tfds": data.pattern, "split": split.name}
        draft = Draft(pipeline_name(f"{info.name}-{split.name}"), source, sum(split.shard_lengths))
        records = read_first(list_shards(folder, info, split)[0].path, SAMPLES_READ)
        rows = [parse_example(record) or {} for record in records]
        values = {n: [v for row in rows if n in row for v in row[n][1][:1]] for n in leaves.found}
        kinds = {name: f"{leaf.dtype}{[*leaf.shape]}" for name, leaf in leaves.found.items()}
        draft.add({name: (kinds[name], values[name]) for name in kinds})
        draft.leave_out(leaves.left_out)
        yield draft


DRAFTER = Drafter(_tfds, described_by={INFO_NAME: {"name", "splits"}})
