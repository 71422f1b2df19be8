"""Encoded images: in folders, with labels from here and there, and in TFRecords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


def pixels(file: tf.Tensor, size: int) -> tf.Tensor:
    """An image file as uint8[size, size, 3]: infeed rounds what `resize` gives to uint8."""
    return rounded(tf.io.decode_jpeg(tf.io.read_file(file), channels=3), size)


def rounded(image: tf.Tensor, size: int) -> tf.Tensor:
    return tf.cast(tf.round(tf.image.resize(image, [size, size])), tf.uint8)


def normalize(image: tf.Tensor) -> tf.Tensor:
    return tf.cast(image, tf.float32) / 255.0


def whole(dataset: tf.data.Dataset) -> Any:
    """All elements of the dataset as one."""
    return dataset.batch(1000).get_single_element()


def sizes(count: int) -> list[tuple[int, int]]:
    """Heights and widths in pixels, smaller and larger than what they are resized to."""
    return [(60 + 37 * number % 190, 50 + 53 * number % 230) for number in range(count)]


def save_jpegs(folder: Path, names: list[str], draw: Any) -> list[str]:
    """A JPEG of each name, every fifth of them greyscale; their paths, sorted."""
    folder.mkdir()
    for number, (name, size) in enumerate(zip(names, sizes(len(names)), strict=True)):
        picture = draw(number, *size, 1 if number % 5 == 2 else 3)
        (folder / name).write_bytes(tf.io.encode_jpeg(picture).numpy())
    return sorted(str(folder / name) for name in names)


def test_labels_from_file_names(example: Any, draw: Any) -> None:
    pets = example("folder_file_name_labels")
    classes = ["cat", "dog", "guinea_pig"]
    # Written in another order than the one they are sorted in; cat.10 comes before cat.2.
    names = [f"{classes[-number % 3]}.{number}.jpg" for number in range(20)]
    save_jpegs(pets.data / "pets", names, draw)
    rows = pets.read()

    def load(file: tf.Tensor) -> Any:
        name = tf.strings.split(file, "/")[-1]
        label = tf.argmax(tf.strings.split(name, ".")[0] == tf.constant(classes))
        return normalize(pixels(file, 128)), label

    files = tf.data.Dataset.list_files(f"{pets.data}/pets/*.jpg", shuffle=False)
    image, label = whole(files.map(load))
    assert rows.sizes == [16, 4]
    assert rows.ids.tolist() == list(range(20))
    np.testing.assert_array_equal(rows["label"], label)
    np.testing.assert_array_equal(rows["image"], image)
    assert sorted(set(rows["label"].tolist())) == [0, 1, 2]


def test_resize_stays_within_half_a_grey_level_of_float_resize(example: Any, draw: Any) -> None:
    pets = example("folder_file_name_labels")
    save_jpegs(pets.data / "pets", [f"cat.{number}.jpg" for number in range(16)], draw)
    rows = pets.read()

    def load(file: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
        return tf.image.resize(image, [128, 128]) / 255.0

    files = tf.data.Dataset.list_files(f"{pets.data}/pets/*.jpg", shuffle=False)
    # Rounding to uint8, so that a quarter of the bytes travels, moves a value by half a level;
    # the rest is for float32.
    np.testing.assert_allclose(rows["image"], whole(files.map(load)), rtol=0, atol=0.5 / 255 + 1e-6)


def test_a_folder_that_mixes_formats(example: Any, draw: Any) -> None:
    mixed = example("folder_mixed")
    folder = mixed.data / "mixed"
    folder.mkdir()
    # Name, format and channels: greyscale, RGB and RGBA; endings in any case.
    kinds = [
        ("jpg", tf.io.encode_jpeg, 3),
        ("jpeg", tf.io.encode_jpeg, 1),
        ("png", tf.io.encode_png, 4),
        ("JPEG", tf.io.encode_jpeg, 3),
        ("png", tf.io.encode_png, 1),
        ("PNG", tf.io.encode_png, 3),
    ]
    for number, size in enumerate(sizes(18)):
        ending, encode, channels = kinds[number % len(kinds)]
        picture = draw(number, *size, channels)
        (folder / f"{number:02}.{ending}").write_bytes(encode(picture).numpy())
    (folder / "notes.txt").write_text("no picture")
    rows = mixed.read()

    def load(file: tf.Tensor) -> tf.Tensor:
        contents = tf.io.read_file(file)
        image = tf.io.decode_image(contents, channels=3, expand_animations=False)
        image.set_shape([None, None, 3])
        return normalize(rounded(image, 224))

    files = sorted(str(file) for file in folder.iterdir() if file.suffix != ".txt")
    assert set(rows.fields) == {"image"}
    assert rows.sizes == [8, 8, 2]
    assert rows.ids.tolist() == list(range(18))
    expected = whole(tf.data.Dataset.from_tensor_slices(files).map(load))
    np.testing.assert_array_equal(rows["image"], expected)


def csv_folder(data: Path, draw: Any) -> tuple[list[str], list[int]]:
    """A folder of JPEGs and its CSV, whose rows are in no order; the files and labels, sorted."""
    names = [f"photo-{number:02}.jpg" for number in range(18)]
    files = save_jpegs(data / "pictures", names, draw)
    labels = [number * 7 % 5 for number in range(18)]
    lines = [f"{name},{label}" for name, label in zip(names, labels, strict=True)]
    (data / "labels.csv").write_text("\n".join(["file,label", *lines[::-1]]) + "\n")
    return files, labels


def test_labels_from_a_csv(example: Any, draw: Any, keys: Any) -> None:
    served = example("folder_csv_labels")
    files, labels = csv_folder(served.data, draw)
    rows = served.read(epochs=2)
    keys(rows, seed=17)
    dataset = tf.data.Dataset.from_tensor_slices((files, labels))
    image, label = whole(dataset.map(lambda file, label: (normalize(pixels(file, 224)), label)))
    assert rows.sizes == [8, 8, 8, 8, 4]
    np.testing.assert_array_equal(rows["label"], label.numpy()[rows.ids])
    np.testing.assert_array_equal(rows["image"], image.numpy()[rows.ids])


def test_labels_from_a_csv_with_brightness_and_contrast(example: Any, draw: Any, keys: Any) -> None:
    served = example("folder_csv_labels_augmented")
    files, labels = csv_folder(served.data, draw)
    rows = served.read(epochs=2)

    def load(file: tf.Tensor, label: tf.Tensor, key: tf.Tensor) -> Any:
        fold = tf.random.experimental.stateless_fold_in
        image = pixels(file, 224)
        image = tf.image.stateless_random_brightness(image, 0.2, fold(key, 2))
        image = tf.image.stateless_random_contrast(image, 0.8, 1.2, fold(key, 3))
        return normalize(image), label

    dataset = tf.data.Dataset.from_tensor_slices(
        (np.array(files)[rows.ids], np.array(labels)[rows.ids], keys(rows, seed=17))
    )
    image, label = whole(dataset.map(load))
    np.testing.assert_array_equal(rows["label"], label)
    np.testing.assert_array_equal(rows["image"], image)


def test_records_with_labels_as_strings(example: Any, draw: Any) -> None:
    served = example("tfrecord_string_labels")
    files = [str(served.data / f"part-{number}.tfrecord") for number in range(2)]
    for place, file in enumerate(files):
        with tf.io.TFRecordWriter(file) as out:
            for number, size in enumerate(sizes(10)):
                picture = draw(10 * place + number, *size, 1 if number == 4 else 3)
                feature = {
                    "image": of_bytes(tf.io.encode_jpeg(picture).numpy()),
                    "label": of_bytes(str(37 * number - place).encode()),
                }
                features = tf.train.Features(feature=feature)
                out.write(tf.train.Example(features=features).SerializeToString())
    rows = served.read()

    def parse(record: tf.Tensor) -> Any:
        text = tf.io.FixedLenFeature([], tf.string)
        parsed = tf.io.parse_single_example(record, {"image": text, "label": text})
        image = rounded(tf.io.decode_jpeg(parsed["image"], channels=3), 128)
        return normalize(image), tf.strings.to_number(parsed["label"], tf.int64)

    image, label = whole(tf.data.TFRecordDataset(files).map(parse))
    assert rows.sizes == [16, 4]
    assert rows["label"].dtype == np.int64
    np.testing.assert_array_equal(rows["label"], label)
    np.testing.assert_array_equal(rows["image"], image)


def of_bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
