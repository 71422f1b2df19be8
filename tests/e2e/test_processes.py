"""`infeed serve --processes`: several interchangeable processes on one port, and files that are
renewed: each process reads them again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.harness.children import children, is_alive
from tests.harness.waiting import TIMEOUT_SECONDS

import infeed
from infeed import TLS, AuthenticationError
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.processes import serve_processes
from infeed_server.service.tokens import fingerprint

TEXT = """
pipelines:
  n:
    source: {arrays: n.npy}
    shuffle: {seed: 3}
    batch: {size: 4}
"""
ANN, BEN = "infeed_ann", "infeed_ben"

FOREVER = 100_000.0
"""Seconds for which a trainer would go on trying: a refusal ends it before."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_definition(tmp_path)
    return tmp_path


def write_definition(folder: Path) -> None:
    np.save(folder / "n.npy", np.arange(100))
    (folder / "pipelines.yaml").write_text(TEXT)


def ready(http: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=100) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))


def sent(http: str) -> float:
    """Batches that all processes together have sent."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=100) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line.split()[-1] for line in lines if line.startswith("infeed_batches_total{")]
    return sum(map(float, counts))


def until(condition: Any, seconds: float = TIMEOUT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def write_tokens(file: Path, *names: str) -> None:
    grants = [
        {"name": name, "sha256": fingerprint(f"infeed_{name}"), "pipelines": ["n"]}
        for name in names
    ]
    replace(file, yaml.safe_dump({"tokens": grants}))


def replace(file: Path, text: str) -> None:
    """Writes in one step, as a file is renewed that others read."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


class Pair:
    """A server of two processes, with the files of its certificate, key and tokens."""

    def __init__(self, command_line: Any, folder: Path, pki: Any) -> None:
        self._pki = pki
        self.cert, self.key, self.tokens = (
            folder / name for name in ("cert.pem", "key.pem", "tokens.yaml")
        )
        self.put("server")
        write_tokens(self.tokens, "ann", "ben")
        both = folder / "both.pem"
        both.write_text(pki.ca.read_text() + pki.stranger_ca.read_text())
        self.options: dict[str, Any] = {"tls": TLS(ca=both), "token": BEN}
        """Of a trainer that is served whichever certificate the server has by now."""
        words = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--processes", "2")
        files = ("--tls-cert", self.cert, "--tls-key", self.key, "--tokens", self.tokens)
        self.parent = command_line.start(
            "serve", "pipelines.yaml", *words, *map(str, files), cwd=folder
        )
        self.address = self.parent.address
        self.http = self.parent.stdout.split("(http ")[1].split(")")[0]

    def put(self, name: str) -> None:
        """Renews the certificate and its key."""
        replace(self.key, getattr(self._pki, f"{name}_key").read_text())
        replace(self.cert, getattr(self._pki, name).read_text())

    def epoch(self) -> list[Any]:
        with infeed.connect(self.address, "n", epochs=1, **self.options) as feed:
            return [batch.sample_ids.tolist() for batch in feed]


@pytest.fixture(scope="module")
def pair(command_line: Any, pki: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One server for all tests: a process of it takes seconds to start. It ends in good order."""
    folder = tmp_path_factory.mktemp("pair")
    write_definition(folder)
    found = Pair(command_line, folder, pki)
    try:
        yield found
        both = children(found.parent.pid)
        assert len(both) == 2
        found.parent.signal(signal.SIGTERM)
        assert found.parent.wait() == 0
        assert not any(is_alive(pid) for pid in both)
    finally:
        found.parent.kill()


def test_two_processes_serve_one_pipeline(pair: Pair) -> None:
    assert ready(pair.http)["ready"]
    assert len(children(pair.parent.pid)) == 2
    before = sent(pair.http)
    # Whichever process the kernel chooses for each.
    epochs = [pair.epoch() for _ in range(6)]
    assert sorted(index for batch in epochs[0] for index in batch) == list(range(100))
    assert all(other == epochs[0] for other in epochs)
    # Each feed's last batch may be missing: the feed can leave before that is counted. And what a
    # feed asks for again after a broken connection is sent twice.
    until(lambda: sent(pair.http) >= before + 6 * 24)


def test_a_process_that_is_killed_is_started_again_and_a_feed_goes_on_at_the_other(
    pair: Pair,
) -> None:
    expected = pair.epoch()
    with infeed.connect(pair.address, "n", epochs=1, **pair.options) as feed:
        before = [next(feed).sample_ids.tolist() for _ in range(5)]
        os.kill(children(pair.parent.pid)[0], signal.SIGKILL)
        after = [batch.sample_ids.tolist() for batch in feed]
    assert before + after == expected
    told: list[dict[str, Any]] = []
    until(lambda: not told.append(ready(pair.http)) and not told[-1]["ready"])
    assert "process" in told[-1]["reason"]
    until(lambda: ready(pair.http)["ready"])
    assert "ended with status -9" in pair.parent.stderr


def test_files_that_are_renewed_are_read_again_by_every_process(pair: Pair, pki: Any) -> None:
    """The certificate counts for new connections, the tokens for open streams too."""
    server, address = pair.parent, pair.address
    old, new = TLS(ca=pki.ca), TLS(ca=pki.stranger_ca)

    def both(line: str, tls: TLS) -> None:
        """Connects until each process, of which the kernel chooses one, has logged the line. They
        look at files when one is needed, once a second at most."""

        def told() -> bool:
            assert not server.ended, server.stderr
            if server.stderr.count(line) >= 2:
                return True
            with (
                contextlib.suppress(AuthenticationError),  # of a process that has not looked yet
                infeed.connect(address, "n", timeout=100, tls=tls, token=BEN) as feed,
            ):
                feed.next(100)
            return False

        until(told)
        assert server.stderr.count(line) == 2

    options: dict[str, Any] = {"tls": old, "prefetch_bytes": 1, "timeout": 100}
    with (
        infeed.connect(address, "n", token=ANN, **options) as ann,
        infeed.connect(address, "n", token=BEN, **options) as ben,
    ):
        assert ann.next(100).start == ben.next(100).start == 0
        replace(pair.tokens, "tokens: [{name: 5}]")
        both("; what was read before stays in force", old)
        pair.put("stranger")
        both(f"read again: {pair.cert}, {pair.key}", new)
        for _ in range(10):
            ann.next(100)
        with pytest.raises(AuthenticationError, match="unable to get local issuer certificate"):
            infeed.connect(address, "n", token=ANN, tls=old, timeout=FOREVER)
        write_tokens(pair.tokens, "ben")
        both(f"read again: {pair.tokens}", new)
        with pytest.raises(AuthenticationError, match=r"none that this server knows \(any more\)"):
            list(ann)
        for _ in range(10):
            ben.next(100)


# As the parent starts it: with the read end of a pipe, here a named one, as standard input.
ONE_OF_TWO = """
import os
import infeed.cli

os.dup2(os.open("parent", os.O_RDONLY), 0)
infeed.cli.main()
"""


def start_one_of_two(command_line: Any, folder: Path) -> Any:
    os.mkfifo(folder / "parent")
    (folder / "one_of_two.py").write_text(ONE_OF_TWO)
    words = ("--listen", "127.0.0.1:0", "--http", "off", "--one-of", "2")
    return command_line.start(
        *("python", "one_of_two.py", "serve", "pipelines.yaml", *words), cwd=folder
    )


def test_a_process_ends_with_its_parents_end_of_the_pipe(command_line: Any, folder: Path) -> None:
    process = start_one_of_two(command_line, folder)
    with (folder / "parent").open("w"):
        with infeed.connect(process.address, "n", epochs=1) as feed:
            assert len(list(feed)) == 25
        assert not process.ended
    assert process.wait() == 0


def test_a_dataset_whose_ranks_have_to_meet_ends_each_process(
    command_line: Any, folder: Path
) -> None:
    (folder / "draws.py").write_text(
        "import tensorflow as tf\n"
        "def make():\n"
        "    return tf.data.Dataset.range(100).map(lambda x: {'x': tf.random.uniform([])})\n"
    )
    text = "pipelines: {n: {source: {dataset: draws:make}, batch: {size: 4}}}"
    (folder / "pipelines.yaml").write_text(text)
    process = start_one_of_two(command_line, folder)
    with (folder / "parent").open("w"):
        assert process.wait() == 1  # which ends the parent: test_fleet has that
    assert process.stdout == ""
    assert "n.source.dataset: it has no order" in process.stderr
    assert "leave out --processes" in process.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ServerOptions("unix:/tmp/none/s", None), "processes cannot share unix:/tmp/none/s"),
        (ServerOptions("0.0.0.0:0", None), "--insecure"),
        (ServerOptions("127.0.0.1:0", "0.0.0.0:0"), "--http 0.0.0.0:0"),
    ],
)
def test_what_cannot_be_shared(options: ServerOptions, told: str) -> None:
    with pytest.raises(infeed.ConfigError, match=told):
        serve_processes("pipelines.yaml", options, 2, pytest.fail, pytest.fail)
