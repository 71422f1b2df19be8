"""Mistakes of a first hour, each with its message: what is wrong, and what to write instead."""

from __future__ import annotations

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
WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    *(
        (
            {"batch_size": value},
            f"an integer from 1 to 131072, or None for the pipeline's, not {of}",
        )
        for value, of in (
            (2.5, "2.5 (float)"),
            ("8", "'8' (str)"),
            (True, "True (bool)"),
            (NAN, "nan (float)"),
        )
    ),
    ({"batch_size": 2**70}, f"from 1 to 131072, or None for the pipeline's, not {2**70}"),
    ({"seed": -1}, "from 0 to 2^63 - 1, or None for the pipeline's, not -1"),
    ({"seed": 1.0}, "an integer from 0 to 2^63 - 1, or None for the pipeline's, not 1.0 (float)"),
    ({"epochs": 0}, "from 1 to 2^63 - 1, or None for an endless feed, not 0"),
    ({"epochs": 2**62}, f"from 1 to {(2**63 - 1) // 8}, not {2**62}"),
    (
        {"epochs": True},
        "an integer from 1 to 2^63 - 1, or None for an endless feed, not True (bool)",
    ),
    ({"remainder": "keep"}, '"drop" or "pad", not \'keep\''),
    ({"finish": None}, '"trainer" or "server" or "none", not None'),
    ({"job_name": 7}, "a str that is not empty, not 7 (int)"),
    ({"prefetch_bytes": 1e9}, "an integer from 0 to 2^63 - 1, not 1000000000.0 (float)"),
    ({"timeout": NAN}, f"{SECONDS}, not nan"),
    ({"timeout": None}, f"{SECONDS}, not None"),
    ({"timeout": "20"}, f"{SECONDS}, not '20' (str)"),
    ({"reconnect_timeout": -1}, f"{SECONDS}, or math.inf, not -1"),
    (
        {"shard": (0, 2)},
        "an infeed.Shard or None, not (0, 2); use shard=infeed.Shard(rank=0, world_size=2)",
    ),
    ({"token": 7}, "a str, or a function that returns one, not int"),
    ({"tls": "ca.pem"}, "True, False, None or infeed.TLS(ca=...), not 'ca.pem'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS, ids=str)
def test_wrong_option_of_connect(options: dict[str, Any], message: str) -> None:
    with pytest.raises(infeed.InvalidRequestError) as caught:
        connect(**options)
    assert str(caught.value) == f"{next(iter(options))} must be {message}"


def test_numbers_of_numpy_are_accepted() -> None:
    options = {"batch_size": np.int16(4), "seed": np.int64(3), "epochs": np.uint8(2)}
    shard = infeed.Shard(np.int32(0), np.int32(2))
    with connect(shard=shard, timeout=np.float32(20), **options) as feed:
        next(feed)
        assert {type(value) for value in feed.state().values()} == {int, str}


URL = "is a URL; leave out {0}:// and give host:port, such as 'host:7470'{1}"
TLS = ", and turn TLS on: tls=True, or --tls"
PYTHON: list[tuple[str, type[Exception], str]] = [
    *(
        (
            f"infeed.connect('{scheme}://host:7470', 'photos')",
            infeed.InvalidRequestError,
            f"target '{scheme}://host:7470' {URL.format(scheme, tls)}",
        )
        for scheme, tls in (("http", ""), ("grpc", ""), ("https", TLS), ("grpcs", TLS))
    ),
    (
        "infeed.connect('host', 'photos')",
        infeed.InvalidRequestError,
        (
            "target 'host' has no host and port; use host:port, dns:///host:port or unix:/path, "
            "several separated by commas"
        ),
    ),
    (
        "infeed.connect(7470, 'photos')",
        infeed.InvalidRequestError,
        'target must be a str that is not empty, such as "127.0.0.1:7470", not 7470 (int)',
    ),
    (
        "infeed.connect('-', 'photos', transport='127.0.0.1:7470')",
        infeed.InvalidRequestError,
        (
            "transport must be None or a transport such as infeed.testing.FakeTransport(...), not "
            "'127.0.0.1:7470'; the address of a server is the first argument"
        ),
    ),
    (
        "infeed.Shard(1.5, 2)",
        infeed.InvalidRequestError,
        "rank must be an integer from 0 to 65535, not 1.5 (float)",
    ),
    (
        "infeed.Shard(0, 2**70)",
        infeed.InvalidRequestError,
        f"world_size must be from 1 to 65536, not {2**70}",
    ),
    (
        "infeed.Shard(2, 2)",
        infeed.InvalidRequestError,
        "rank 2 is out of range: with world_size 2, it must be from 0 to 1",
    ),
    (
        "next(feed)['images']",
        infeed.FieldNotFoundError,
        "the batch has no field 'images' (did you mean 'image'?); fields: image, label",
    ),
    (
        "next(feed)[0]",
        infeed.FieldNotFoundError,
        "the batch has no field 0; fields: image, label",
    ),
    (
        "feed.next(timeout=float('nan'))",
        infeed.InvalidRequestError,
        f"timeout must be {SECONDS}, or math.inf, not nan",
    ),
    (
        "[list(feed), list(feed)]",
        infeed.FeedClosedError,
        (
            "the feed of 'fake' has ended: all of its batches were delivered. Connect again for "
            "each pass, or once with epochs=n for n passes in one loop"
        ),
    ),
    (
        "infeed.tensorflow.from_generator(feed, label='lable')",
        infeed.InvalidRequestError,
        (
            "label='lable': the pipeline has no such field (did you mean 'label'?); fields: image, "
            "label; label=None gives dicts of all fields"
        ),
    ),
    (
        "infeed.tensorflow.from_generator(feed, label=3)",
        infeed.InvalidRequestError,
        "label must be a str that is not empty, such as 'label', not 3 (int)",
    ),
    (
        "infeed.tensorflow.from_generator(feed, mask='auto')",
        infeed.InvalidRequestError,
        "mask must be True or False, or None for weights if slots can be empty, not 'auto' (str)",
    ),
    (
        "audit('-', 'fake', world_size=2.5)",
        infeed.InvalidRequestError,
        "world_size must be an integer from 1 to 1024, not 2.5 (float)",
    ),
    (
        "audit('-', 'fake', resume_every=0)",
        infeed.InvalidRequestError,
        "resume_every must be from 1 to 2^63 - 1, not 0",
    ),
]


@pytest.mark.parametrize(("code", "error", "message"), PYTHON)
def test_mistake_in_python(
    feed: infeed.Feed, code: str, error: type[Exception], message: str
) -> None:
    from infeed.audit import audit

    with pytest.raises(error) as caught:
        eval(code, {"infeed": infeed, "feed": feed, "audit": audit})
    assert str(caught.value) == message
    assert type(caught.value) is error


COMMANDS: list[tuple[str, int, str]] = [
    (
        "peek http://127.0.0.1:7470 photos",
        1,
        (
            "error: target 'http://127.0.0.1:7470' is a URL; leave out http:// and give host:port, "
            "such as '127.0.0.1:7470'"
        ),
    ),
    (
        "peek {server} photo",
        1,
        "error: no pipeline 'photo'; this server has: photos",
    ),
    ("peek {server} photos --png {folder}", 1, "error: --png {folder}: is a directory"),
    (
        "peek {server} photos --png {folder}/away/p.png",
        1,
        "error: --png {folder}/away/p.png: no such file or directory",
    ),
    (
        "audit {server} photos --json {folder}",
        1,
        "error: --json {folder}: is a directory",
    ),
    (
        "audit {server} photos --quarantine {folder}",
        1,
        "error: --quarantine {folder}: is a directory",
    ),
    ("audit {server} photos --quarantine {yaml}", 1, "no entry of a quarantine log"),
    ("audit {server} photos --world-size two", 1, "or numbers separated by commas such as 3,2,5"),
    ("list {server} --token-file {folder}", 1, "error: --token-file {folder}: is a directory"),
    ("list {server} --tls-ca {folder}", 1, "error: tls: ca {folder}: is a directory"),
    ("list {server} --timeout nan", 1, f"error: --timeout must be {SECONDS}, not nan"),
    (
        "serve {folder}",
        1,
        "error: '{folder}' is a folder; name a YAML file, as infeed init writes it, or module:attr",
    ),
    (
        "serve {yaml} --listen {server} --http off",
        1,
        (
            "error: cannot listen on {server}: address already in use; stop the process that "
            "listens there, or give another --listen, where port 0 is any free one"
        ),
    ),
    (
        "serve {yaml} --listen 127.0.0.1:0 --http {server}",
        1,
        (
            "error: cannot listen on {server}: address already in use; stop the process that "
            "listens there, or give another --http, where port 0 is any free one"
        ),
    ),
    ("serve {yaml} --listen 127.0.0.1:0 --http off --tokens {folder}", 1, "{folder}.*directory"),
    ("index {folder}", 1, "error: '{folder}' is a folder; name its files, as in '{folder}/*'"),
    ("init {folder} --output {folder}/away/x.yaml", 1, "error: .*{folder}"),
    ("check {folder}", 2, "{folder}:1: the file cannot be read: Is a directory"),
    ("lst", 2, "No such command 'lst'. Did you mean 'list'"),
    ("list {server} --jsn", 2, "No such option.*--jsn"),
]


GLOBAL_EFFECTS = (
    *("cli.logs.set_up_service_logging", "cli.index.set_up_logging", "cli.init.set_up_logging"),
    *("cli.check.set_up_logging", "cli.check.defer_tensorflow", "cli.init.defer_tensorflow"),
    *("processes.signals.ShutdownSignal.install", "processes.malloc.keep_freed_memory"),
    "rpc.resources.raise_file_limit",
)
"""What commands do to their process, and the process of tests must not have."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A server of the pipeline "photos", an empty folder, and a YAML file."""
    root = tmp_path_factory.mktemp("places")
    np.savez(root / "data.npz", **ARRAYS)
    yaml = root / "pipelines.yaml"
    source = "{arrays: data.npz}"
    yaml.write_text(f"pipelines:\n  photos: {{source: {source}, batch: {{size: 4}}}}\n")
    from infeed_server.pipeline.load import from_yaml

    (root / "empty").mkdir()
    with Server(from_yaml(str(yaml)), ServerOptions("127.0.0.1:0", None)) as server:
        yield {"server": server.address, "folder": root / "empty", "yaml": yaml}


@pytest.mark.parametrize(("line", "status", "message"), COMMANDS)
def test_mistake_on_the_command_line(
    places: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    status: int,
    message: str,
) -> None:
    for name in GLOBAL_EFFECTS:
        monkeypatch.setattr(f"infeed_server.{name}", lambda *_, **__: None)
    monkeypatch.setenv("TERMINAL_WIDTH", "300")
    monkeypatch.setattr(sys, "argv", ["infeed", *line.format(**places).split()])
    with pytest.raises(SystemExit) as caught:
        main()
    text = caught.value.code
    if status == 2:
        assert text == 2
        output = capsys.readouterr()
        text = output.err or output.out  # `check` prints problems as its result
    expected = message.format(**places)
    assert text == expected or re.search(expected, text), text
