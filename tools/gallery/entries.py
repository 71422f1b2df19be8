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
    """The bucket of an object store that has the data."""


ENTRIES = (
    Entry(
        "folder_csv_labels",
        "Classification",
        data.write_csv,
        "Images in a folder, and a CSV with a label for each. Rows may be in any order; an image "
        "without a row is a bad sample, which `infeed check --scan` names.",
        "sources.md#images",
    ),
    Entry(
        "folder_csv_labels_augmented",
        "Augmentation",
        data.write_csv,
        "Random transforms draw from (seed, epoch, sample): the same on each server and after "
        "each restart, and others in each epoch.",
        "transforms.md",
    ),
    Entry(
        "class_folders",
        "Class folders",
        data.write_folders,
        "A folder for each class. Only the window of a random crop is decoded where it stands "
        "right behind `decode_image`.",
        "sources.md#images",
    ),
    Entry(
        "webdataset_tars",
        "WebDataset tars",
        data.write_tar,
        "Tars are read by index: a global shuffle, exactly once, resumed in constant time, without "
        "unpacking them.",
        "sources.md#webdataset",
    ),
    Entry(
        "parquet_images",
        "Parquet",
        data.write_parquet,
        "Row groups are read once in window order. Needs `infeed[formats]`.",
        "table-sources.md#parquet",
    ),
    Entry(
        "arrays_augmented",
        "Arrays",
        data.write_arrays,
        "Arrays of NumPy, mapped into memory once for all trainers.",
        "table-sources.md#arrays",
    ),
    Entry(
        "float_features",
        "A table of numbers",
        data.write_table,
        "No images, no transforms: rows of features, shuffled over all of them.",
        "table-sources.md#arrays",
    ),
    Entry(
        "python_dataset",
        "Python",
        data.write_nothing,
        "Any class with `__len__` and `__getitem__`, such as a map-style data set of PyTorch, in "
        "processes of its own. Its order and resumes are exact, as with files.",
        "python-sources.md#python",
    ),
    Entry(
        "raw_tfrecords_cached",
        "A cache",
        data.write_raw_records,
        "What is the same in each epoch is kept behind `cache`, in memory or on a disk; random "
        "transforms come after it.",
        "pipelines.md#cache",
    ),
    Entry(
        "object_store",
        "An object store",
        data.write_folders,
        "The same images in a bucket; credentials come from the environment. Needs "
        "`infeed[stores]`. Measured with a store on the same machine.",
        "sources.md#object-stores",
        bucket="pictures",
    ),
    Entry(
        "dataset_resize_convert",
        "A sequential data set",
        data.write_flat,
        "A function that returns a `tf.data.Dataset`, as it is. Its order is kept if it is "
        "deterministic; a resume reads up to the position.",
        "python-sources.md#dataset",
    ),
    Entry(
        "data_service",
        "TensorFlow's data service",
        data.write_folders,
        "The same definition, made by processes of TensorFlow's data service on any number of "
        "hosts. Batches come in no order.",
        "service.md",
        options=("--engine", "tf-data-service", "--workers", "2"),
    ),
)
