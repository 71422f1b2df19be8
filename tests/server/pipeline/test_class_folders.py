"""Class folders of several pipelines: one class has one number in all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed import ConfigError
from infeed_server.pipeline.load import from_yaml


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "0.jpg").touch()


def load(folder: Path, labels: str = "folders", images: str = "") -> None:
    file = folder / "pipelines.yaml"
    file.write_text(
        "pipelines:\n"
        f"  train: {{source: {{images: {images}train, labels: {labels}}}, batch: 1}}\n"
        "  val:\n"
        f"    source: {{images: {images}val, labels: {labels}}}\n"
        "    batch: 1\n"
    )
    from_yaml(str(file))


def test_pipelines_that_number_classes_differently_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "train/cat", "train/dog", "val/ant", "val/cat", "val/dog")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/pipelines.yaml:4: pipelines.val.source.labels: label 0 is 'ant', not 'cat' "
        f"as in {tmp_path}/train; write the same list in both, labels: "
        "{folders: [ant, cat, dog]}"
    )
    with pytest.raises(ConfigError, match=r"label 0 is 'ant', not 'cat' as in file://"):
        load(tmp_path, images=f"file://{tmp_path}/")
    load(tmp_path, "{folders: [ant, cat, dog]}")


def test_unrelated_classes_get_a_list_each(tmp_path: Path) -> None:
    write(tmp_path, "train/cat", "train/dog", "val/1", "val/2")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value).endswith(
        f"label 0 is '1', not 'cat' as in {tmp_path}/train; they have no class in common, so "
        "give each its own list: here labels: {folders: ['1', '2']}, there labels: {folders: "
        "[cat, dog]}"
    )


def test_classes_that_only_some_pipelines_have_at_the_end_are_fine(tmp_path: Path) -> None:
    write(tmp_path, "train/cat", "train/dog", "val/cat")
    (tmp_path / "val" / "annotations").mkdir()
    load(tmp_path)


def test_a_missing_folder_is_left_to_the_source(tmp_path: Path) -> None:
    write(tmp_path, "train/cat")
    load(tmp_path)


def test_tables_that_number_classes_otherwise_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "train/ant", "train/bee", "val/images")
    file = tmp_path / "pipelines.yaml"
    (tmp_path / "val.csv").write_text("file,label\nimages/0.jpg,bee\n")

    def load_with(classes: str) -> None:
        file.write_text(
            "pipelines:\n"
            "  train: {source: {images: train, labels: folders}, batch: 1}\n"
            f"  val: {{source: {{images: val, labels: {{table: val.csv, classes: {classes}}}}}, "
            "batch: 1}\n"
        )
        from_yaml(str(file))

    with pytest.raises(ConfigError) as caught:
        load_with("[bee]")
    assert str(caught.value).endswith(
        f"val.source.labels: label 0 is 'bee', not 'ant' as in {tmp_path}/train; write the "
        f"same list in both, classes: [ant, bee], beside table: {tmp_path}/val.csv"
    )
    load_with("[ant, bee]")
    load_with("[cow, dog]")  # of another data set
