"""A flood of calls without a token, beside trainers that have one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import infeed
from infeed_server.serving.auth import new_token, token_entry

DEFINITION = "pipelines: {numbers: {source: {arrays: n.npy}, batch: {size: 4}}}\n"

ATTACKER = """
import sys
import threading
import grpc

refusals = []

def attack(channel):
    method = channel.stream_stream("/infeed.v1.FeedService/StreamBatches")
    while True:
        try:
            list(method(iter([b""])))
        except grpc.RpcError as error:
            refusals.append(error.code().name)
            if len(refusals) == 1000:
                print(set(refusals), flush=True)

with grpc.insecure_channel(sys.argv[1]) as channel:
    for _ in range(32):
        threading.Thread(target=attack, args=(channel,), daemon=True).start()
    threading.Event().wait()
"""

BATCHES = 300


def test_calls_without_a_token_do_not_starve_trainers(command_line: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "n.npy", np.arange(4000))
    token = new_token()
    (tmp_path / "tokens.yaml").write_text(token_entry(token, "team", ["*"]))
    options = ("--tokens", str(tmp_path / "tokens.yaml"))
    server = command_line.serve(DEFINITION, tmp_path, "127.0.0.1:0", *options)
    attacker = subprocess.Popen(
        [sys.executable, "-c", ATTACKER, server.address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == "{'UNAUTHENTICATED'}\n"
        for _ in range(2):  # the second one connects in the middle of the flood
            with infeed.connect(server.address, "numbers", token=token) as feed:
                for step in range(BATCHES):
                    assert feed.next(timeout=60).start == 4 * step
        assert attacker.poll() is None
    finally:
        attacker.kill()
        attacker.wait()
        attacker.stdout.close()  # type: ignore[union-attr]
