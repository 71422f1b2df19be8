"""Tests of `worker.py` and `dataset.py`: a user's data set, its elements and its errors."""

from __future__ import annotations

import errno
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed import ConfigError, InfeedError, SampleError, SourceError, UserCodeError
from infeed_formats.values import Field
from infeed_python.dataset import DatasetOptions, UserDataset, dataset_identity
from infeed_python.worker import Request, Worker
from infeed_server.sources.places import example_indices


class Numbers:
    """A data set of `length` elements: a function's results, or i at index i."""

    fingerprint = "numbers"

    def __init__(self, get: Callable[[int], Any] = lambda index: index, length: Any = 20) -> None:
        self._get = get
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        assert type(index) is int
        return self._get(index)


class Batches(Numbers):
    """Reads several elements at a time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls: list[list[int]] = []

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("it has __getitems__")

    def __getitems__(self, indices: list[int]) -> Any:
        self.calls.append(indices)
        return [self._get(index) for index in indices]


class Opened:
    """A worker's view of a data set."""

    def __init__(self, dataset: Any, **options: Any) -> None:
        self._worker = Worker(DatasetOptions(dataset, "m:d", **options))
        self._declared = options.get("fields")
        self.description = self._worker.open()

    def fields(self) -> tuple[Field, ...]:
        looked_at = example_indices(self.description.length)
        request = Request("m:d", looked_at, self.description)
        return self._declared or self._worker.infer(request)

    def read(self, indices: Sequence[int], fields: tuple[Field, ...]) -> dict[str, Any]:
        return self._worker.read(Request("m:d", indices, self.description, fields))[0]


opened = Opened


def read(dataset: Opened, *indices: int) -> dict[str, Any]:
    columns = dataset.read(indices, dataset.fields())
    return {name: column.tolist() for name, column in columns.items()}


@pytest.fixture
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infeed_server.storage.faults._sleep", lambda _: None)


def test_object_and_function_are_data_sets() -> None:
    for target in (Numbers(), Numbers, lambda: Numbers(length=20)):
        dataset = opened(target)
        assert dataset.description.length == 20
        assert read(dataset, 3, 0, 3) == {"value": [3, 0, 3]}


def test_elements_are_read_together_if_possible() -> None:
    batches = Batches()
    dataset = opened(batches)
    fields = dataset.fields()
    batches.calls.clear()
    assert dataset.read([5, 3], fields)["value"].tolist() == [5, 3]
    assert batches.calls == [[5, 3]]


@pytest.mark.parametrize(("count", "found"), [(1, "1"), (3, "more than 2")])
def test_wrong_number_of_elements_is_refused(count: int, found: str) -> None:
    class Wrong(Batches):
        def __getitems__(self, indices: Sequence[int]) -> Any:
            return [0] * (1 if len(indices) == 1 else count)

    dataset = opened(Wrong())
    message = rf"m:d.__getitems__ returned {found} elements for 2 indices"
    with pytest.raises(UserCodeError, match=message):
        read(dataset, 1, 2)


def test_elements_may_be_made_one_by_one_in_the_same_memory() -> None:
    class Generated(Batches):
        def __getitems__(self, indices: Sequence[int]) -> Any:
            element = np.zeros(2, np.int64)
            for index in indices:
                element[:] = index
                yield element

    assert read(opened(Generated()), 4, 2, 9) == {"value": [[4, 4], [2, 2], [9, 9]]}


def test_fields_are_those_of_elements_all_over_the_data_set() -> None:
    dataset = opened(Numbers(lambda index: (np.zeros((index // 19 + 1, 3), np.uint8), index)))
    assert list(map(str, dataset.fields())) == ["uint8[?, 3]", "int64[]"]
    named = opened(Numbers(lambda index: (index, "a")), names=("x", "y"))
    assert read(named, 1) == {"x": [1], "y": [b"a"]}


def test_declared_fields_are_read_without_looking() -> None:
    def get(index: int) -> Any:
        seen.append(index)
        return {"x": index, "ignored": None}

    seen: list[int] = []
    dataset = opened(Numbers(get), fields=(Field("x", "float32"),))
    assert [str(field) for field in dataset.fields()] == ["float32[]"]
    assert not seen
    assert read(dataset, 2) == {"x": [2.0]}


def test_bad_elements_do_not_hide_the_fields() -> None:
    def get(index: int) -> Any:
        if index not in (0, 19):
            raise ValueError("bad")
        return index or None

    assert read(opened(Numbers(get)), 19) == {"value": [19]}
    with pytest.raises(UserCodeError, match=r"m:d\[0\] raised ValueError"):
        opened(Numbers(lambda index: get(1))).fields()


@pytest.mark.parametrize(
    "error",
    [
        *(ValueError("no"), KeyError(1), IndexError(), StopIteration(), OSError("no picture")),
        *(SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError()),
    ],
)
@pytest.mark.parametrize("kind", [Numbers, Batches])
def test_exceptions_are_errors_with_the_lines_of_the_user(kind: Any, error: BaseException) -> None:
    def get(index: int) -> int:
        if index == 5:
            raise error
        return index

    dataset = opened(kind(get))
    with pytest.raises(UserCodeError) as caught:
        read(dataset, 4, 5)
    assert caught.value.message.startswith(
        f"m:d{'[5]' if kind is Numbers else '.__getitems__'} raised {type(error).__name__}:\n"
    )
    assert "raise error" in caught.value.message
    assert "dataset.py" not in caught.value.message.replace("test_dataset.py", "")


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("kind", [Numbers, Batches])
@pytest.mark.parametrize("lazily", [False, True])
def test_storage_faults_are_repeated(kind: Any, lazily: bool) -> None:
    class Lazy:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.asarray(fails_twice(0))

    def fails_twice(index: int) -> int:
        calls.append(index)
        if len(calls) % 3:
            raise OSError(errno.EIO, "Input/output error")
        return index

    calls: list[int] = []
    get = (lambda index: Lazy()) if lazily else fails_twice
    dataset = opened(kind(get), fields=(Field("value", "int64"),))
    assert read(dataset, 0) == {"value": [0]}
    assert len(calls) == 3


def test_element_that_does_not_fit_is_a_bad_sample() -> None:
    # Index 6 is not among the elements that show the fields.
    dataset = opened(Numbers(lambda index: {"x": index} if index == 6 else {"x": index, "y": 1}))
    assert read(dataset, 5) == {"x": [5], "y": [1]}
    with pytest.raises(SampleError, match=r"^sample 6 of m:d .*has no field 'y'") as caught:
        read(dataset, 5, 6)
    assert caught.value.metadata["sample_id"] == "6"


@pytest.mark.parametrize(
    ("dataset", "error", "message"),
    [
        (Numbers(length=0), SourceError, "m:d is empty: its __len__ is 0"),
        (Numbers(length=-1), UserCodeError, "m:d.__len__ raised ValueError:"),
        (Numbers(length=2.0), UserCodeError, "m:d.__len__ raised TypeError:"),
        (iter([1]), ConfigError, "m:d is a list_iterator, without __len__ or __getitem__"),
        (lambda: {1}, ConfigError, "m:d returned a set, without __len__ or __getitem__"),
        (3, ConfigError, "m:d is a int, without __len__ .* {dataset"),
        (lambda: 1 / 0, UserCodeError, "m:d raised ZeroDivisionError:"),
        (lambda: sys.exit(1), UserCodeError, "m:d raised SystemExit:"),
        ([1, 2], ConfigError, "m:d has no identity"),
    ],
)
def test_what_is_no_data_set_is_refused(
    dataset: Any, error: type[InfeedError], message: str
) -> None:
    with pytest.raises(error, match=message):
        opened(dataset)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module with a new name; returns the name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(code: str, name: str = "user_data") -> str:
        sys.modules.pop(name, None)
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        return name

    return write


CODE = "def make():\n    return [1, 2]\n"


def identity(name: str = "user_data:make", **options: Any) -> str:
    options = {"identity": "v1", **options}
    return UserDataset(DatasetOptions(name, name, **options)).description.identity


def test_identity_covers_the_declared_text_the_code_and_the_length(module: Any) -> None:
    module(CODE)
    first = identity()
    assert identity() == first
    assert identity(identity="v2") != first
    assert identity(names=("x",)) != first
    for code in (CODE + "# changed\n", CODE.replace("[1, 2]", "[1, 2, 3]")):
        module(code)
        assert identity() != first


def test_module_that_cannot_be_loaded_is_refused(module: Any) -> None:
    module("undefined\n", "broken")
    with pytest.raises(UserCodeError, match="the module of broken:make raised NameError:"):
        identity("broken:make")
    with pytest.raises(ConfigError, match="no module 'no_such_module'"):
        identity("no_such_module:make")


def of_type(name: str, **attributes: Any) -> Any:
    """Returns an object of a class with these attributes."""
    return type(name, (), attributes)()


HUGGING_FACE = {"_fingerprint": "3a7b", "__repr__": lambda _: "Dataset({num_rows: 3})"}
GRAIN = "ArrayRecordDataSource(paths=['a-0.arrayrecord'])"


@pytest.mark.parametrize(
    ("dataset", "identity"),
    [
        (of_type("Named", fingerprint="v1"), "fingerprint 'v1'"),
        (of_type("Method", fingerprint=lambda _: b"v2"), "fingerprint b'v2'"),
        (of_type("Dataset", **HUGGING_FACE), "_fingerprint '3a7b'"),
        (of_type("Dataset", **HUGGING_FACE, fingerprint=7), "fingerprint 7"),
        (of_type("Grain", __repr__=lambda _: GRAIN), f"repr {GRAIN}"),
    ],
)
def test_identity_of_an_object(dataset: Any, identity: str) -> None:
    assert dataset_identity(dataset, "m:d") == identity


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (of_type("Plain"), "a Plain has no repr of its own"),
        (
            of_type("Address", __repr__=lambda _: repr(object())),
            "its repr contains a memory address, which changes at each start",
        ),
        ([1, 2], "the repr of a list does not identify its content"),
        (np.arange(10_000), "the repr of a ndarray does not identify its content"),
        (np.ma.masked_array([1, 2]), "the repr of a MaskedArray does not identify its content"),
    ],
)
def test_object_without_identity_is_refused(dataset: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match="m:d has no identity") as caught:
        dataset_identity(dataset, "m:d")
    assert reason in caught.value.message
    assert "identity: v1" in caught.value.message
