"""Tests of `pipeline/removal.py`: the ids of removed samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.removal import removed_samples
from infeed_server.pipeline.removal_list import list_line, read_list
from infeed_server.sources.base import Source

FILES = ("a/cat.png", "a/dog.png", "b/cat.png", "b/ape.png", "b/bigape.png")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Images with the ids 0: a/cat, 1: a/dog, 2: b/ape, 3: b/bigape, 4: b/cat."""
    folder = tmp_path_factory.mktemp("images")
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(tf.io.encode_png(np.zeros((2, 2, 3), np.uint8)).numpy())
    return parse({"source": {"images": str(folder)}, "batch": 1}).open()


def ids_of(remove: Any, source: Source) -> tuple[int, ...]:
    definition = parse({"source": {"arrays": {"x": np.arange(3)}}, "remove": remove, "batch": 1})
    return removed_samples(definition.remove, source)


@pytest.mark.parametrize(
    ("listed", "ids"),
    [
        ([4, 1], (4, 1)),
        (["dog.png", 0], (1, 0)),
        (["ape.png"], (2,)),
        (["b/cat.png", "a/cat.png"], (4, 0)),
        ([], ()),
    ],
    ids=str,
)
def test_ids_and_ends_of_paths_keep_their_order(
    source: Source, listed: Any, ids: tuple[int, ...]
) -> None:
    assert ids_of(listed, source) == ids_of({"samples": listed}, source) == ids


def test_a_whole_path_is_a_name(source: Source) -> None:
    assert ids_of([source.provenance(3).file], source) == (3,)


def test_a_comment_is_behind_a_number_sign_between_spaces(tmp_path: Path) -> None:
    """Else it is a part of a file's name; what can be both is refused."""
    for name in ("cat.png", "cat.png #2.png", "dog.png", "dog.png # 2.png", "#1.png"):
        (tmp_path / "images" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "images" / name).write_bytes(b"")
    images: Any = {"source": {"images": str(tmp_path / "images")}, "batch": 1}
    source, path = parse(images).open(), tmp_path / "removed.txt"

    def names_of(text: str) -> list[str]:
        path.write_text(text)
        ids = ids_of(str(path), source)
        return [source.provenance(index).file.rpartition("/")[2] for index in ids]

    assert names_of("cat.png #2.png\n# dog\n#\n #1.png #") == ["cat.png #2.png", "#1.png"]
    assert names_of("cat.png # dark # blurred") == ["cat.png"]
    with pytest.raises(ConfigError, match=r"'dog.png # 2.png' is the file name .* \"dog.png # 2.p"):
        names_of("dog.png # 2.png")
    assert names_of('"dog.png # 2.png"\n"cat.png" # "dark"') == ["dog.png # 2.png", "cat.png"]
    with pytest.raises(ConfigError, match=r"no sample has the file 'cat.png #dark'.* with ' # '"):
        names_of("cat.png #dark")


@pytest.mark.parametrize(
    "name", ["a.png", "a # b.png", "#", '"', '"a" # b', "7", " a", "a\nb\x85c\u2028", "\udce9"]
)
def test_the_line_of_any_name_says_this_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "list").write_text(f"{list_line(name)}\n{list_line('b.png')} # c\n")
    names, others = read_list(str(tmp_path / "list"))
    assert (names, list_line("b.png")) == ((name, "b.png"), "b.png")
    assert others == {"b.png # c"}


def test_a_file_has_one_in_a_line(source: Source, tmp_path: Path) -> None:
    path = tmp_path / "removed.txt"
    path.write_text("dog.png\n\n  3\r\n")
    assert ids_of(str(path), source) == (1, 3)


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ([5], "there is no sample 5; the ids are 0 to 4"),
        ([1, "dog.png"], "sample 1 is listed again as 'dog.png'"),
        (["dog.png", "dog.png"], "sample 1 is listed again"),
        (["cow.png"], "no sample has the file 'cow.png'; `infeed what` shows files and ids"),
        (["at.png"], "no sample has the file 'at.png'"),
        (["cat.png"], "'cat.png' matches samples 0 and 4"),
        ([0, 1, 2, 3, 4], "all 5 samples are listed"),
    ],
    ids=str,
)
def test_what_names_no_sample_or_several_is_refused(
    source: Source, listed: Any, problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        ids_of(listed, source)
    assert raised.value.message.startswith("remove: ")
    assert problem in raised.value.message


def test_a_missing_file_and_other_text_are_refused(source: Source, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^remove: cannot read .*none\.txt"):
        ids_of(str(tmp_path / "none.txt"), source)
    (tmp_path / "latin").write_bytes(b"\xe9")
    with pytest.raises(ConfigError, match="latin is not UTF-8 text"):
        ids_of(str(tmp_path / "latin"), source)
    (tmp_path / "list").write_text("9\n")
    with pytest.raises(ConfigError, match="list: there is no sample 9"):
        ids_of(str(tmp_path / "list"), source)
