"""Mistakes of a first hour, each with its message: what is wrong, and what to write instead."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.cli import main
from infeed.testing import FakeTransport
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.server import Server

ARRAYS = {"image": np.zeros((8, 2, 2, 3), np.uint8), "label": np.arange(8)}


def connect(target: Any = "-", pipeline: Any = "fake", **options: Any) -> infeed.Feed:
    return infeed.connect(target, pipeline, transport=FakeTransport(ARRAYS), **options)


@pytest.fixture
def feed() -> Iterator[infeed.Feed]:
    with connect(epochs=1, batch_size=4) as feed:
        yield feed


NAN = float("nan")
SECONDS = "a number of seconds from 0 to 100000000"
BATCH_SIZE = "from 1 to 131072, or None for the pipeline's, not"
EPOCHS = "from 1 to 2^63 - 1, or None for an endless feed, not"
WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 2.5}, f"an integer {BATCH_SIZE} 2.5 (float)"),
    ({"batch_size": True}, f"an integer {BATCH_SIZE} True (bool)"),
    ({"batch_size": 2**70}, f"{BATCH_SIZE} {2**70}"),
    ({"connections": 17}, "from 1 to 16, not 17"),
    ({"seed": -1}, "from 0 to 2^63 - 1, or None for the pipeline's, not -1"),
    ({"epochs": 0}, f"{EPOCHS} 0"),
    ({"epochs": 2**62}, f"from 1 to {(2**63 - 1) // 8}, not {2**62}"),
    ({"steps": (5, 5)}, "None, or a tuple of the first step and the end, such as (100, 200)"),
    ({"remainder": "keep"}, '"drop" or "pad", not \'keep\''),
    ({"empty": -100}, 'a dict of fields and numbers, such as {"label": -100}, not -100'),
    ({"empty": {"label": "x"}}, "a dict of fields and numbers, such as"),
    ({"finish": None}, '"trainer" or "server" or "none", not None'),
    ({"job_name": 7}, "a nonempty str, not 7 (int)"),
    ({"timeout": NAN}, f"{SECONDS}, not nan"),
    ({"timeout": "20"}, f"{SECONDS}, not '20' (str)"),
    ({"reconnect_timeout": -1}, f"{SECONDS}, or math.inf, not -1"),
    (
        {"shard": (0, 2)},
        "an infeed.Shard(rank, world_size) or None, not (0, 2)",
    ),
    ({"token": 7}, "a str, or a function that returns one, not int"),
    ({"tls": "ca.pem"}, "True, False, None or infeed.TLS(ca=...), not 'ca.pem'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS, ids=str)
def test_wrong_option_of_connect(options: dict[str, Any], message: str) -> None:
    with pytest.raises(infeed.InvalidRequestError) as caught:
        connect(**options)
    assert str(caught.value).startswith(f"{next(iter(options))} must be {message}")


def test_numbers_of_numpy_are_accepted() -> None:
    options = {"batch_size": np.int16(4), "seed": np.int64(3), "epochs": np.uint8(2)}
    shard = infeed.Shard(np.int32(0), np.int32(2))
    with connect(shard=shard, timeout=np.float32(20), **options) as feed:
        next(feed)
        state = feed.state()
    assert json.loads(json.dumps(state)) == state


INVALID, NO_FIELD = infeed.InvalidRequestError, infeed.FieldNotFoundError
GENERATOR = "infeed.tensorflow.from_generator"
PYTHON: list[tuple[str, type[Exception], str]] = [
    *(
        (f"infeed.connect('{scheme}://host:7470', 'photos')", INVALID, rest)
        for scheme, rest in (
            ("http", "target 'http://host:7470' is a URL; leave out http:// and give host:port"),
            ("grpcs", "'host:7470', and turn TLS on: tls=True, or --tls"),
        )
    ),
    ("infeed.connect('host', 'photos')", INVALID, "'host' has no host and port; use host:port, "),
    ("infeed.connect(7470, 'photos')", INVALID, 'such as "127.0.0.1:7470", not 7470 (int)'),
    (
        "infeed.connect('-', 'photos', transport='127.0.0.1:7470')",
        INVALID,
        "not '127.0.0.1:7470'; the address of a server is the first argument",
    ),
    ("infeed.Shard(1.5, 2)", INVALID, "rank must be an integer from 0 to 65535, not 1.5 (float)"),
    ("infeed.Shard(0, 2**70)", INVALID, f"world_size must be from 1 to 65536, not {2**70}"),
    ("infeed.Shard(2, 2)", INVALID, "rank 2 is out of range: with world_size 2, it must be from"),
    ("next(feed)['images']", NO_FIELD, "no field 'images' (did you mean 'image'?); fields: image"),
    ("next(feed)[0]", NO_FIELD, "the batch has no field 0; fields: image, label"),
    ("feed.next(timeout=float('nan'))", INVALID, f"timeout must be {SECONDS}, or math.inf, not"),
    (
        "[list(feed), list(feed)]",
        infeed.FeedClosedError,
        "all of its batches were delivered. Connect again for each pass, or once with epochs=n",
    ),
    (f"{GENERATOR}(feed, label='lable')", INVALID, "no such field (did you mean 'label'?); fields"),
    (f"{GENERATOR}(feed, label=3)", INVALID, "label must be a nonempty str, such as"),
    (f"{GENERATOR}(feed, mask='auto')", INVALID, "mask must be True or False, not 'auto' (str)"),
    ("audit('-', 'fake', world_size=2.5)", INVALID, "world_size must be an integer from 1 to 1024"),
    ("audit('-', 'fake', resume_every=0)", INVALID, "resume_every must be from 1 to 2^63 - 1, not"),
]


@pytest.mark.parametrize(("code", "error", "message"), PYTHON)
def test_mistake_in_python(
    feed: infeed.Feed, code: str, error: type[Exception], message: str
) -> None:
    from infeed_tools.audit.run import audit

    with pytest.raises(error) as caught:
        eval(code, {"infeed": infeed, "feed": feed, "audit": audit})
    assert message in str(caught.value)
    assert type(caught.value) is error


IN_USE = "^error: cannot listen on {server}: address already in use; stop the process that listens"
COMMANDS: list[tuple[str, int, str]] = [
    ("peek {server} photo", 1, "^error: no pipeline 'photo'; this server has: photos$"),
    ("peek {server} photos --png {folder}", 1, "^error: --png {folder}: is a directory$"),
    ("audit {server} photos --json {folder}", 1, "^error: --json {folder}: is a directory$"),
    ("audit {server} photos --quarantine {yaml}", 1, "not an entry of a quarantine log"),
    ("audit {server} photos --world-size two", 1, "or several separated by commas such as 3,2,5"),
    ("audit {server} photos --quarantine {folder}", 1, "^error: --quarantine {folder}: is a dir"),
    ("list {server} --token-file {folder}", 1, "^error: --token-file {folder}: is a directory$"),
    ("list {server} --tls-ca {folder}", 1, "^error: tls: ca {folder}: is a directory$"),
    ("list {server} --timeout nan", 1, f"^error: --timeout must be {SECONDS}, not nan$"),
    ("serve {folder}", 1, "^error: '{folder}' is a folder; give a YAML file, such as infeed init"),
    ("serve {yaml} --listen {server} --http off", 1, IN_USE + ".*give another --listen, where"),
    ("serve {yaml} --listen 127.0.0.1:0 --http {server}", 1, IN_USE + ".*give another --http, w"),
    ("serve {yaml} --listen 127.0.0.1:0 --http off --tokens {folder}", 1, "{folder}.*directory"),
    ("index {folder}", 1, "^error: '{folder}' is a folder; name its files, as in '{folder}/"),
    ("init {folder} --output {folder}/away/x.yaml", 1, "^error: .*{folder}"),
    ("check {folder}", 2, "{folder}:1: the file cannot be read: Is a directory"),
    ("lst", 2, "No such command 'lst'. Did you mean 'list'"),
    ("list {server} --jsn", 2, "No such option.*--jsn"),
]


GLOBAL_EFFECTS = (
    "infeed_server.cli.logs.LogOptions.set_up",
    "infeed_tools.index.command.set_up_logging",
    *(f"infeed_tools.check.command.{name}" for name in ("set_up_logging", "defer_tensorflow")),
    *(f"infeed_tools.init.command.{name}" for name in ("set_up_logging", "defer_tensorflow")),
    "infeed_server.processes.signals.ShutdownSignal.install",
    "infeed_server.processes.malloc.keep_freed_memory",
    "infeed_server.rpc.limits.raise_file_limit",
)
"""What commands do to their process, and the process of tests must not have."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A server of the pipeline "photos", an empty folder, and a YAML file."""
    from infeed_server.pipeline.load import from_yaml

    root = tmp_path_factory.mktemp("places")
    np.savez(root / "data.npz", **ARRAYS)
    yaml = root / "pipelines.yaml"
    yaml.write_text("pipelines: {photos: {source: {arrays: data.npz}, batch: {size: 4}}}\n")
    (root / "empty").mkdir()
    with Server(from_yaml(str(yaml)), ServerOptions("127.0.0.1:0", None)) as server:
        yield {"server": server.address, "folder": root / "empty", "yaml": yaml}


@pytest.mark.parametrize(("line", "status", "message"), COMMANDS)
def test_mistake_on_the_command_line(
    places: dict[str, Any], monkeypatch: Any, capsys: Any, line: str, status: int, message: str
) -> None:
    for name in GLOBAL_EFFECTS:
        monkeypatch.setattr(name, lambda *_, **__: None)
    monkeypatch.setenv("TERMINAL_WIDTH", "300")
    monkeypatch.setattr(sys, "argv", ["infeed", *line.format(**places).split()])
    with pytest.raises(SystemExit) as caught:
        main()
    text = caught.value.code
    if status == 2:
        assert text == 2
        output = capsys.readouterr()
        text = output.err or output.out  # `check` prints problems as its result
    assert re.search(message.format(**places), text, re.DOTALL), text
