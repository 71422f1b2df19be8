"""Image files below a folder: what is listed, and what is left out and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed_server.sources.images.listing import class_folders, has_image, list_images


@pytest.fixture(params=["", "file://"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A folder of images by class on a disk and in a store, with other files among them."""
    names = [
        *("cat/a.jpg", "cat/b.webp", "dog/deep/c.GIF", "dog/d.bmp", "dog/e.jfif"),
        *("cat/@eaDir/a.jpg/THUMB.jpg", "#recycle/old.jpg", "__MACOSX/cat/a.jpg"),
        *("lost+found/x.png", ".cache/y.jpg", "dog/.hidden.jpg", "dog/._d.bmp"),
        *("cat/f.HEIC", "dog/g.tif", "dog/h.tif", "meta/classes.txt", "labels.csv"),
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return f"{request.param}{tmp_path}"


def test_folders_of_a_system_and_other_formats_are_counted(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    listing = list_images(root)
    assert [image.path for image in listing.images] == [
        *("cat/a.jpg", "cat/b.webp", "dog/d.bmp", "dog/deep/c.GIF", "dog/e.jfif")
    ]
    assert listing.folders == ("cat", "dog")
    assert listing.empty_folders == ("meta",)
    system, formats = caplog.messages
    assert system == (
        f"{root}: 4 folders are skipped because their names begin like system folders (@ # $ __ "
        "lost+found): #recycle, __MACOSX, cat/@eaDir, lost+found"
    )
    assert formats == (
        f"{root}: 3 images are skipped because their formats cannot be decoded (1 .heic, 2 .tif); "
        "convert them to JPEG or PNG"
    )


def test_class_folders_are_those_of_the_listing(root: str) -> None:
    assert class_folders(root) == list_images(root).folders
    assert has_image(f"{root}/cat")
    assert not has_image(f"{root}/meta")
    assert not has_image(f"{root}/labels.csv")
