"""The pipelines of the gallery, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.gallery import data


@dataclass(frozen=True)
class Entry:
    """A pipeline: the name of its file in `examples/`, what writes its data, and what it shows."""

    file: str
    title: str
    write: Callable[[Path], None]
    text: str
    reference: str
    options: tuple[str, ...] = ()
    """More options of `infeed serve`."""
    bucket: str = ""
    """The bucket of an object store with the data."""


ENTRIES = (
    Entry(
        "folder_csv_labels",
        "Classification",
        data.write_csv,
        "A folder of images, and a CSV that gives each its label.",
        "sources.md#images",
    ),
    Entry(
        "class_folders",
        "Class folders",
        data.write_folders,
        "A folder for each class. The random crop decodes only its window of a JPEG.",
        "sources.md#images",
    ),
    Entry(
        "webdataset_tars",
        "WebDataset tars",
        data.write_tar,
        "Tars, read by index without unpacking: a global shuffle, resumed in constant time.",
        "sources.md#webdataset",
    ),
    Entry(
        "parquet_images",
        "Parquet",
        data.write_parquet,
        "Images as Hugging Face stores them. Window order reads each row group once.",
        "table-sources.md#parquet",
    ),
    Entry(
        "arrays_augmented",
        "Arrays",
        data.write_arrays,
        "NumPy arrays, with a random flip and brightness.",
        "table-sources.md#arrays",
    ),
    Entry(
        "python_dataset",
        "Python",
        data.write_nothing,
        "A class with `__len__` and `__getitem__`, read by two processes, with an exact order and "
        "exact resumes.",
        "python-sources.md#python",
    ),
    Entry(
        "raw_tfrecords_cached",
        "A cache",
        data.write_raw_records,
        "Decoded once and kept in memory; random transforms come after the cache.",
        "pipelines.md#cache",
    ),
    Entry(
        "object_store",
        "An object store",
        data.write_folders,
        "Images in a bucket, here on the same machine, in window order.",
        "sources.md#object-stores",
        bucket="pictures",
    ),
    Entry(
        "dataset_resize_convert",
        "A sequential data set",
        data.write_flat,
        "A function that returns a `tf.data.Dataset`, served in its own order.",
        "python-sources.md#dataset",
    ),
    Entry(
        "data_service",
        "TensorFlow's data service",
        data.write_folders,
        "A folder of images, decoded by the workers of TensorFlow's data service; batches come in "
        "no order.",
        "service.md",
        options=("--engine", "tf-data-service", "--workers", "2"),
    ),
)
