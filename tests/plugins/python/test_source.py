"""The `python` source: options, tensors of all kinds, bad samples, worker processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError
from tests.harness.waiting import wait_until

from infeed import ConfigError, SourceError, UserCodeError
from infeed.shared.spec import BYTES, DATA_TYPES
from infeed.shared.spec.dtypes import numpy_dtype
from infeed_python.source import PythonReader, PythonSource
from infeed_server.engines.base import Engine, HostBatch, Request, Trainer
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.load import parse
from infeed_server.runtime.engine_factory import build

CODE = """
import os
import time

import numpy as np


class Photos:
    fingerprint = "photos"

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 5:
            raise ValueError(f"bad pixel in {index}")
        if index == 6:
            return {"image": np.zeros(3), "label": 6}
        image = np.full((index % 3 + 4, 6, 3), index, np.uint8)
        return {"image": image, "label": index}


class Numbers(Photos):
    def __getitem__(self, index):
        return {"n": index, "pid": os.getpid()}


class Slow(Numbers):
    def __getitem__(self, index):
        while index == 3 and not os.path.exists("go"):
            time.sleep(0.01)
        return super().__getitem__(index)
"""

STEPS = [{"resize": {"field": "image", "size": [4, 4]}}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a uniquely named module."""
    module = f"user_{tmp_path.name}".replace("-", "_").replace("[", "_").replace("]", "_")
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(CODE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("USER_MODULE", module)
    return tmp_path


def target(attribute: str) -> str:
    return f"{os.environ['USER_MODULE']}:{attribute}"


@pytest.fixture
def open_source(folder: Path) -> Iterator[Callable[..., PythonReader]]:
    sources: list[PythonReader] = []

    def start(python: Any, **options: Any) -> PythonReader:
        definition = PythonSource.model_validate({"python": python, **options})
        sources.append(definition.open())
        return sources[-1]

    yield start
    for source in sources:
        source.close()


@pytest.fixture
def engine(folder: Path) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def start(**options: Any) -> Engine:
        definition = {
            "source": {"python": target("Photos")},
            "transforms": STEPS,
            "batch": {"size": 8},
            **options,
        }
        engines.append(build("photos", parse(definition), Monitor()))
        return engines[-1]

    yield start
    for item in engines:
        item.close()


def read(engine: Engine, start: int = 0) -> HostBatch:
    session = engine.open(8, 0, Trainer())
    try:
        answer = session.submit(Request(0, start, 8, 8)).result(600)
        assert isinstance(answer, HostBatch)
        session.on_sent()
        return answer
    finally:
        session.close()


def test_shapes_that_vary_are_parsed(open_source: Any) -> None:
    source = open_source(target("Photos"))
    assert not source.parsed
    assert source.columns == {
        "image": tf.TensorSpec((), tf.string),
        "label": tf.TensorSpec((), tf.int64),
    }
    columns = source.read(np.array([7, 8]))
    traced = tf.function(source.parse).get_concrete_function(dict(source.columns))
    assert traced.structured_outputs["image"].shape.as_list() == [None, 6, 3]
    sample = source.parse({name: tf.constant(rows[1]) for name, rows in columns.items()})
    np.testing.assert_array_equal(sample["image"], np.full((6, 6, 3), 8, np.uint8))
    assert source.provenance(3).file == target("Photos")


@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_arrays_of_each_type_that_vary_are_parsed(open_source: Any, data_type: str) -> None:
    if data_type == BYTES:
        values = np.array([[b"", b"\0a\0", b"x" * 300], [b"b", b"c", b"\xff"]], object)
    else:
        values = np.array([[0, 1, 2], [100, 7, 1]]).astype(numpy_dtype(data_type))
    # One value, none, many, non-contiguous memory, and the other byte order.
    arrays = [values[:1, :1], values[:0], np.tile(values, (100, 2)), values.T]
    swapped = values.dtype.newbyteorder()
    arrays += [values.astype(swapped)] if swapped.isbuiltin == 0 else []
    fields = {"x": {"type": data_type, "shape": [None, None]}}
    source = open_source([{"x": array} for array in arrays], fields=fields, identity="v1")
    column = source.read(np.arange(len(arrays)))["x"]
    for row, array in zip(column, arrays, strict=True):
        parsed = source.parse({"x": tf.constant(row)})["x"].numpy()
        assert parsed.dtype == values.dtype
        np.testing.assert_array_equal(parsed, array)


def test_fixed_shapes_need_no_graph(open_source: Any) -> None:
    source = open_source(target("Numbers"), fields={"n": "float32"})
    assert source.parsed
    assert source.columns == {"n": tf.TensorSpec((), tf.float32)}
    assert source.read(np.array([1, 3]))["n"].tolist() == [1.0, 3.0]


@pytest.mark.parametrize("processes", [0, 2])
def test_each_bad_sample_is_found(engine: Any, folder: Path, processes: int) -> None:
    source = {"python": target("Photos"), "processes": processes}
    with pytest.raises(UserCodeError, match=r"(?s)^sample 5 .*: read: .*\[5\] raised ValueError:"):
        read(engine(source=source))
    masked = read(engine(source=source, on_error="mask"))
    assert masked.sample_ids.tolist() == [0, 1, 2, 3, 4, -1, -1, 7]
    assert masked.arrays["image"][:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 0, 0, 7]
    text = (folder / "quarantine/photos.jsonl").read_text()
    log = [json.loads(line) for line in text.splitlines()]
    errors = {line["sample_id"]: line["error"] for line in log if line["action"] == "mask"}
    assert "in __getitem__" in errors["5"]
    assert errors["6"].endswith("its field 'image' is float64[3], not uint8[?, 6, 3]")


def test_workers_share_a_batch_and_their_end_changes_no_bit(open_source: Any) -> None:
    alone = open_source(target("Numbers"))
    source = open_source(target("Numbers"), processes=2)
    assert source.identity == alone.identity
    indices = np.arange(40)[::-1]
    first = source.read(indices)
    assert first["n"].tolist() == list(range(39, -1, -1))
    assert os.getpid() not in first["pid"]
    for pid in source.backend.runner.pids:
        os.kill(pid, signal.SIGKILL)
    second = source.read(indices)
    assert second["n"].tolist() == first["n"].tolist()
    assert not set(second["pid"]) & set(first["pid"])


def test_worker_that_cannot_be_started_is_an_error_of_the_source(
    open_source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("infeed_python.worker_pool.WorkerPool.start_process", start)
    with pytest.raises(SourceError, match=r"cannot start .*: Too many open files; reduce proc"):
        open_source(target("Numbers"), processes=1)


def test_element_that_ends_each_worker_is_named(
    open_source: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("backend", "worker_pool"):
        monkeypatch.setattr(f"infeed_python.{module}.MAX_REPEATS", 0)
    file = folder / f"{os.environ['USER_MODULE']}.py"
    file.write_text(CODE.replace('raise ValueError(f"bad pixel in {index}")', "os._exit(3)"))
    with pytest.raises(
        SourceError, match=r"read samples 0, 5, .* exit status 3; .* declare the fi"
    ):
        open_source(target("Photos"), processes=1)
    source = open_source(target("Photos"), processes=1, fields={"label": "int64"})
    with pytest.raises(SourceError, match=r"that read samples 4, 5 of .* last with exit status 3"):
        source.read(np.array([4, 5]))
    assert source.read(np.array([4]))["label"].tolist() == [4]


def test_replaced_worker_refuses_a_changed_data_set(open_source: Any, folder: Path) -> None:
    source = open_source(target("Numbers"), processes=1)
    file = folder / f"{os.environ['USER_MODULE']}.py"
    for text, message in (
        (
            CODE.replace("return 40", "return 400"),
            "changed since the server opened.*400, was 40",
        ),
        ("1 / 0\n", "a new worker process cannot open .* raised ZeroDivisionError"),
    ):
        file.write_text(text)
        for pid in source.backend.runner.pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(SourceError, match=f"(?s){message}"):
            source.read(np.array([0]))


@pytest.mark.parametrize("processes", [0, 1])
def test_process_and_samples_of_a_slow_request_are_named(
    open_source: Any,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
) -> None:
    monkeypatch.setattr("infeed_python.backend._SLOW_SECONDS", 0.1)
    source = open_source(target("Slow"), processes=processes, fields={"pid": "int64"})
    caplog.clear()
    with ThreadPoolExecutor(1) as executor:
        answer = executor.submit(source.read, np.arange(12))
        wait_until(lambda: len(caplog.messages) > 1, lambda: "the request is logged twice")
        (folder / "go").touch()
        pid = answer.result()["pid"][0]
    assert caplog.messages[1].startswith(
        f"samples 0, 1, 2, 3, 4, 5, 6, 7 and 4 more of {target('Slow')}: process {pid} has "
        "worked for "
    )


def test_closed_source_refuses_reads(open_source: Any) -> None:
    for processes in (0, 1):
        source = open_source(target("Numbers"), processes=processes)
        source.close()
        with pytest.raises(SourceError, match="no longer read: the server is shutting down"):
            source.read(np.array([0]))


def test_source_is_closed_with_its_engine_or_if_there_is_none(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[PythonReader] = []
    end = PythonReader.close

    def close(reader: PythonReader) -> None:
        closed.append(reader)
        end(reader)

    monkeypatch.setattr(PythonReader, "close", close)
    engine(source={"python": target("Numbers")}, transforms=[]).close()
    assert closed
    closed.clear()
    with pytest.raises(ConfigError, match="no field 'imge'"):
        engine(transforms=[{"resize": {"field": "imge", "size": [4, 4]}}])
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"python": Callable, "processes": 2}, "worker processes open the data set by name"),
        ({"python": "m:d", "processes": -1}, "greater than or equal to 0"),
        ({"python": "m:d", "fields": {"x": "text"}}, "'bytes', 'bool'"),
        ({"python": "m:d", "fields": {"x": {"type": "int8", "shape": [-1]}}}, "greater than or eq"),
        ({"python": "m:d", "fields": {}}, "at least 1 item"),
        ({"python": "m:d", "names": []}, "at least 1 item"),
        ({"python": "m:d", "names": ["a", "b", "a"]}, "'a' appears twice"),
        ({"python": "m:d", "identity": ""}, "at least 1 character"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PythonSource.model_validate(options)
