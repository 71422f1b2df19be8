"""Functions in Python: results, keys, workers that end, bad samples, identity."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.tfrecords import example, write_records

from infeed import ConfigError, SourceError, UserCodeError
from infeed_server.engines.base import HostBatch, Request, Trainer
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.load import parse
from infeed_server.runtime.engine_factory import build

CODE = """
import functools
import os

import numpy as np


class Numbers:
    fingerprint = "numbers"

    def __init__(self):
        self._table = np.arange(80, dtype=np.float32).reshape(40, 2)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": self._table[index], "label": index}


def add_noise(sample, rng):
    sample["x"] += rng.normal(size=2).astype(np.float32)
    return {**sample, "draw": rng.integers(1 << 60)}


def double(sample):
    return {"x": sample["x"] * 2, "label": sample["label"], "name": f"n{sample['label']}"}


def fragile(sample):
    if sample["label"] == 5:
        raise ValueError("no 5")
    if sample["label"] == 6:
        return {"label": "six"}
    return {"label": sample["label"]}


def rarely(sample, rng):
    if rng.random() < 0.2:
        raise ValueError("unlucky")
    return {"label": sample["label"]}


def same(sample):
    return sample


def wild(sample):
    return {"x": np.random.normal()}


def listed(sample):
    return [1]


def sized(sample, shape):
    return {"x": np.zeros(shape)}


opaque = functools.partial(sized, shape=(2, 3))
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A module in the working directory."""
    folder = tmp_path_factory.mktemp("functions")
    (folder / "own_functions.py").write_text(CODE)
    np.savez(folder / "x.npz", x=np.arange(80, dtype=np.float32).reshape(40, 2), label=range(40))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield "own_functions"


@pytest.fixture
def engine(module: str) -> Iterator[Callable[..., IndexedEngine]]:
    engines: list[IndexedEngine] = []

    def start(*maps: Any, processes: int = 0, **options: Any) -> IndexedEngine:
        definition = {
            "source": {"python": f"{module}:Numbers", "processes": processes},
            "shuffle": {"seed": 3},
            "transforms": [python_map(**item) for item in maps],
            "batch": {"size": 8},
            **options,
        }
        made = build("p", parse(definition), Monitor())
        assert isinstance(made, IndexedEngine)
        engines.append(made)
        return made

    yield start
    for item in engines:
        item.close()


def python_map(function: str, **options: Any) -> dict[str, Any]:
    return {"map": {"function": f"own_functions:{function}", "python": True, **options}}


def read(engine: IndexedEngine, start: int = 0, size: int = 8, seed: int = 3) -> HostBatch:
    session = engine.open(size, 0, Trainer())
    try:
        answer = session.submit(Request(seed, start, size, size)).result(600)
        assert isinstance(answer, HostBatch)
        session.on_sent()
        return answer
    finally:
        session.close()


def workers_of(engine: IndexedEngine) -> Any:
    return engine.plan.source.backend.runner


NOISE = {"function": "add_noise"}
DOUBLE = {"function": "double"}


def test_functions_are_applied_in_order_and_give_the_fields(engine: Any) -> None:
    made = engine(NOISE, DOUBLE)
    assert [str(field) for field in made.spec.element_spec] == [
        *("x: float32[2]", "label: int64[]", "name: bytes[]")
    ]
    batch = read(made)
    ids = batch.sample_ids.tolist()
    assert batch.arrays["label"].tolist() == ids
    assert batch.arrays["name"].tolist() == [f"n{item}".encode() for item in ids]
    noise = batch.arrays["x"] / 2 - np.arange(80).reshape(40, 2)[ids]
    assert np.abs(noise).min() > 0
    assert np.abs(noise).max() < 6


def test_bits_depend_on_the_key_alone(engine: Any) -> None:
    """Not on processes, their end, the source, the batch size, or what was read before."""
    expected = {start: read(engine(NOISE), start) for start in (0, 8, 40)}
    draws = {start: batch.arrays["draw"].tolist() for start, batch in expected.items()}
    assert len({draw for item in draws.values() for draw in item}) == 24
    by_id = dict(zip(expected[0].sample_ids.tolist(), draws[0], strict=True))
    next_epoch = dict(zip(expected[40].sample_ids.tolist(), draws[40], strict=True))
    assert not set(by_id.items()) & set(next_epoch.items())

    in_processes = engine(NOISE, processes=3)
    stored = engine({**NOISE, "processes": 2}, source={"arrays": "x.npz"})
    for made in (in_processes, stored):
        read(made, 16)
        for pid in workers_of(made).pids:
            os.kill(pid, signal.SIGKILL)
        for start in (40, 0, 8, 0):  # a function changes its argument, not the data set
            batch = read(made, start)
            for name, array in expected[start].arrays.items():
                np.testing.assert_array_equal(batch.arrays[name], array, strict=True)
    double_size = read(in_processes, 0, 16)
    assert double_size.arrays["draw"].tolist() == draws[0] + draws[8]
    assert read(in_processes, 0, seed=4).arrays["draw"].tolist() != draws[0]


@pytest.mark.parametrize("processes", [0, 1])
def test_each_bad_result_is_found(engine: Any, processes: int) -> None:
    fragile = {"function": "fragile", "fields": {"label": "int64"}}
    options = {"processes": processes, "shuffle": {"mode": "none"}}
    with pytest.raises(
        UserCodeError,
        match=r"(?s)^sample 5 \(.*\): transforms\[0\].map: own_functions:fragile raised ValueErr",
    ):
        read(engine(fragile, **options))
    masked = read(engine(fragile, **options, on_error="mask"))
    assert masked.sample_ids.tolist() == [0, 1, 2, 3, 4, -1, -1, 7]
    log = [json.loads(line) for line in Path("quarantine/p.jsonl").read_text().splitlines()]
    errors = {line["sample_id"]: line for line in log if line["action"] == "mask"}
    assert errors["5"]["stage"] == "transforms[0].map"
    assert "in fragile" in errors["5"]["error"]
    assert errors["6"]["error"].endswith(
        "after transforms[0].map does not fit: its field 'label' is bytes[], not int64[]"
    )
    Path("quarantine/p.jsonl").unlink()


def test_substitutes_of_unlucky_draws_are_the_same_everywhere(engine: Any) -> None:
    options = {"on_error": "substitute"}
    first, second = (
        engine({"function": "rarely"}, processes=processes, **options) for processes in (0, 2)
    )
    # The second has seen no sample of the first epoch, which are good under another key.
    for start in (*range(0, 40, 8), 40, 48):
        expected = read(first, start).sample_ids.tolist()
    assert read(second, 48).sample_ids.tolist() == expected
    assert len(Path("quarantine/p.jsonl").read_text().splitlines()) > 1
    Path("quarantine/p.jsonl").unlink()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": "wild"}, r"transforms\[0\].map: two calls with sample 0 and the same random"),
        (
            {"function": "listed"},
            r"sample 0 of .* after transforms\[0\].map is a list; own_functions",
        ),
        (
            {"function": "opaque"},
            r"\].map: own_functions:opaque has no identity.* it holds 'shape'",
        ),
        ({"function": "double", "processes": 2}, r"map.processes: the function runs where the py"),
        ({"function": "gone"}, r"transforms\[0\].map: 'own_functions' has no 'gone'; it has: "),
    ],
)
def test_function_that_cannot_be_served_is_refused(
    engine: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        engine(options)


def test_replaced_worker_refuses_changed_code(engine: Any) -> None:
    made = engine({**NOISE, "processes": 1}, source={"arrays": "x.npz"})
    file = Path("own_functions.py")
    (pid,) = workers_of(made).pids
    file.write_text(CODE + "\n# changed\n")
    os.kill(pid, signal.SIGKILL)
    try:
        with pytest.raises(SourceError, match="the code of own_functions:add_noise changed since"):
            read(made)
    finally:
        file.write_text(CODE)


def test_python_stands_first(engine: Any) -> None:
    flip = {"cast": {"field": "x", "dtype": "float64"}}
    function = python_map("double")
    with pytest.raises(ConfigError, match=r"^transforms\[1\].map.python: .* it follows cast; move"):
        engine(transforms=[flip, function])
    cached = engine(transforms=[function, {"drop": {"fields": ["name"]}}, "cache", flip])
    first, second = (read(cached).arrays["x"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    noise = python_map("add_noise")
    with pytest.raises(ConfigError, match=r"cache: map \(transforms\[0\]\) comes before it"):
        engine(transforms=[noise, "cache"])


def test_records_are_parsed_before_the_function(engine: Any, tmp_path: Path) -> None:
    file = tmp_path / "r.tfrecord"
    records = [example({"label": [number]}) for number in range(8)]
    records[3] = b"\xff\xfe\xff bad \xc3"
    write_records(file, records)
    source = {"tfrecord": str(file), "features": {"label": "int64"}}
    fragile = {"function": "fragile", "processes": 1, "fields": {"label": "int64"}}
    made = engine(fragile, source=source, on_error="mask", shuffle={"mode": "none"})
    assert read(made).sample_ids.tolist() == [0, 1, 2, -1, 4, -1, -1, 7]
    Path("quarantine/p.jsonl").unlink()
    tried = engine({"function": "same"}, source=source, on_error="mask", shuffle={"mode": "none"})
    assert read(tried).sample_ids.tolist() == [0, 1, 2, -1, 4, 5, 6, 7]


def test_zeros_at_the_end_of_values_are_kept(engine: Any, tmp_path: Path) -> None:
    file = tmp_path / "r.tfrecord"
    texts = ({"name": [b"%d\0\0" % number], "names": [b"a\0", b"\0"]} for number in range(8))
    write_records(file, map(example, texts))
    features = {"name": "bytes", "names": {"type": "bytes", "shape": [2]}}
    source = {"tfrecord": str(file), "features": features}
    for processes in (0, 1):
        made = engine({"function": "same", "processes": processes}, source=source)
        batch = read(made)
        ids = batch.sample_ids.tolist()
        assert batch.arrays["name"].tolist() == [b"%d\0\0" % number for number in ids]
        assert batch.arrays["names"].tolist() == [[b"a\0", b"\0"]] * 8
