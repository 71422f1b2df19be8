"""Encoded images: in folders, with labels from file names or a CSV, and in TFRecords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.pipeline import sample_graph


def decode_and_resize(file: tf.Tensor, size: int) -> tf.Tensor:
    """Decodes an image file to uint8[size, size, 3], rounded as infeed does."""
    return resize(tf.io.decode_jpeg(tf.io.read_file(file), channels=3), size)


def resize(image: tf.Tensor, size: int) -> tf.Tensor:
    return tf.cast(tf.round(tf.image.resize(image, [size, size])), tf.uint8)


def normalize(image: tf.Tensor) -> tf.Tensor:
    return tf.cast(image, tf.float32) / 255.0


def batch_all(dataset: tf.data.Dataset) -> Any:
    """Returns all elements of the dataset as one batch."""
    return dataset.batch(1000).get_single_element()


def sizes(count: int) -> list[tuple[int, int]]:
    """Returns heights and widths in pixels, below and above the size they are resized to."""
    return [(60 + 37 * number % 190, 50 + 53 * number % 230) for number in range(count)]


def save_jpegs(folder: Path, names: list[str], draw_image: Any) -> list[str]:
    """Writes a JPEG for each name, every fifth in greyscale; returns the sorted paths."""
    folder.mkdir()
    for number, (name, size) in enumerate(zip(names, sizes(len(names)), strict=True)):
        image = draw_image(number, *size, 1 if number % 5 == 2 else 3)
        (folder / name).write_bytes(tf.io.encode_jpeg(image).numpy())
    return sorted(str(folder / name) for name in names)


def test_labels_from_file_names(example: Any, draw_image: Any) -> None:
    pets = example("folder_file_name_labels")
    classes = ["cat", "dog", "guinea_pig"]
    # Not written in sorted order; cat.10 sorts before cat.2.
    names = [f"{classes[-number % 3]}.{number}.jpg" for number in range(20)]
    save_jpegs(pets.data / "pets", names, draw_image)
    rows = pets.read()

    def load(file: tf.Tensor) -> Any:
        name = tf.strings.split(file, "/")[-1]
        label = tf.argmax(tf.strings.split(name, ".")[0] == tf.constant(classes))
        return normalize(decode_and_resize(file, 128)), label

    files = tf.data.Dataset.list_files(f"{pets.data}/pets/*.jpg", shuffle=False)
    image, label = batch_all(files.map(load))
    assert rows.sizes == [16, 4]
    assert rows.ids.tolist() == list(range(20))
    np.testing.assert_array_equal(rows["label"], label)
    np.testing.assert_array_equal(rows["image"], image)
    assert sorted(set(rows["label"].tolist())) == [0, 1, 2]


def test_a_folder_of_mixed_formats(example: Any, draw_image: Any) -> None:
    mixed = example("folder_mixed")
    folder = mixed.data / "mixed"
    folder.mkdir()
    # Suffix in any case, format, and channels: greyscale, RGB and RGBA.
    kinds = [
        ("jpg", tf.io.encode_jpeg, 3),
        ("jpeg", tf.io.encode_jpeg, 1),
        ("png", tf.io.encode_png, 4),
        ("JPEG", tf.io.encode_jpeg, 3),
        ("png", tf.io.encode_png, 1),
        ("PNG", tf.io.encode_png, 3),
    ]
    for number, size in enumerate(sizes(18)):
        suffix, encode, channels = kinds[number % len(kinds)]
        image = draw_image(number, *size, channels)
        (folder / f"{number:02}.{suffix}").write_bytes(encode(image).numpy())
    (folder / "notes.txt").write_text("not an image")
    rows = mixed.read()

    def load(file: tf.Tensor) -> tf.Tensor:
        contents = tf.io.read_file(file)
        image = tf.io.decode_image(contents, channels=3, expand_animations=False)
        image.set_shape([None, None, 3])
        return normalize(resize(image, 224))

    files = sorted(str(file) for file in folder.iterdir() if file.suffix != ".txt")
    assert set(rows.fields) == {"image"}
    assert rows.sizes == [8, 8, 2]
    assert rows.ids.tolist() == list(range(18))
    expected = batch_all(tf.data.Dataset.from_tensor_slices(files).map(load))
    np.testing.assert_array_equal(rows["image"], expected)


def write_csv_folder(data: Path, draw_image: Any) -> tuple[list[str], list[int]]:
    """Writes JPEGs and a CSV in another order; returns the files and labels, sorted."""
    names = [f"photo-{number:02}.jpg" for number in range(18)]
    files = save_jpegs(data / "pictures", names, draw_image)
    labels = [number * 7 % 5 for number in range(18)]
    lines = [f"{name},{label}" for name, label in zip(names, labels, strict=True)]
    (data / "labels.csv").write_text("\n".join(["file,label", *lines[::-1]]) + "\n")
    return files, labels


def test_labels_from_a_csv(example: Any, draw_image: Any, sample_keys: Any) -> None:
    served = example("folder_csv_labels")
    files, labels = write_csv_folder(served.data, draw_image)
    rows = served.read(epochs=2)
    sample_keys(rows, seed=17)
    dataset = tf.data.Dataset.from_tensor_slices((files, labels))
    image, label = batch_all(
        dataset.map(lambda file, label: (normalize(decode_and_resize(file, 224)), label))
    )
    assert rows.sizes == [8, 8, 8, 8, 4]
    np.testing.assert_array_equal(rows["label"], label.numpy()[rows.ids])
    np.testing.assert_array_equal(rows["image"], image.numpy()[rows.ids])


def test_labels_from_a_csv_with_brightness_and_contrast(
    example: Any, draw_image: Any, sample_keys: Any
) -> None:
    served = example("folder_csv_labels_augmented")
    files, labels = write_csv_folder(served.data, draw_image)
    rows = served.read(epochs=2)

    def load(file: tf.Tensor, label: tf.Tensor, key: tf.Tensor) -> Any:
        image = decode_and_resize(file, 224)
        image = tf.image.stateless_random_brightness(image, 0.2, sample_graph.fold(key, 2))
        image = tf.image.stateless_random_contrast(image, 0.8, 1.2, sample_graph.fold(key, 3))
        return normalize(image), label

    dataset = tf.data.Dataset.from_tensor_slices(
        (np.array(files)[rows.ids], np.array(labels)[rows.ids], sample_keys(rows, seed=17))
    )
    image, label = batch_all(dataset.map(load))
    np.testing.assert_array_equal(rows["label"], label)
    np.testing.assert_array_equal(rows["image"], image)


def test_records_with_string_labels(example: Any, draw_image: Any) -> None:
    served = example("tfrecord_string_labels")
    files = [str(served.data / f"part-{number}.tfrecord") for number in range(2)]
    for shard, file in enumerate(files):
        with tf.io.TFRecordWriter(file) as out:
            for number, size in enumerate(sizes(10)):
                image = draw_image(10 * shard + number, *size, 1 if number == 4 else 3)
                feature = {
                    "image": bytes_feature(tf.io.encode_jpeg(image).numpy()),
                    "label": bytes_feature(str(37 * number - shard).encode()),
                }
                features = tf.train.Features(feature=feature)
                out.write(tf.train.Example(features=features).SerializeToString())
    rows = served.read()

    def parse(record: tf.Tensor) -> Any:
        text = tf.io.FixedLenFeature([], tf.string)
        parsed = tf.io.parse_single_example(record, {"image": text, "label": text})
        image = resize(tf.io.decode_jpeg(parsed["image"], channels=3), 128)
        return normalize(image), tf.strings.to_number(parsed["label"], tf.int64)

    image, label = batch_all(tf.data.TFRecordDataset(files).map(parse))
    assert rows.sizes == [16, 4]
    assert rows["label"].dtype == np.int64
    np.testing.assert_array_equal(rows["label"], label)
    np.testing.assert_array_equal(rows["image"], image)


def bytes_feature(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
