"""Commands and a program that the demo prints, pasted into a shell."""

from __future__ import annotations

import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

from infeed_tools.demo import shapes
from infeed_tools.demo.run import commands


def test_what_the_demo_prints_works_when_pasted(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    for _ in shapes.write_images(tmp_path / "shapes" / "train", 30, seed=0):
        pass
    printed = commands(Path("shapes"), "shapes-train")
    address, http = new_address(), new_address()
    given = printed.replace("127.0.0.1:7470", address).replace("127.0.0.1:7471", http)
    init, serve = re.findall(r"^(.* init .*) && (.* serve .*)$", given, re.MULTILINE)[0]
    loop = re.findall(r"^\S+ - <<'END'$.*?^END$", given, re.MULTILINE | re.DOTALL)[0]
    shell = {"shell": True, "cwd": tmp_path, "executable": "/bin/bash", "timeout": 300}
    subprocess.run(init, check=True, **shell)
    command = [*shlex.split(serve), "--listen", address, "--http", http]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith(f"serving on {address}")
            run = subprocess.run(loop, capture_output=True, text=True, check=False, **shell)
            assert run.returncode == 0, run.stderr
            assert "accuracy" in run.stdout
            url = re.findall(r"http://\S+$", given)[0]
            with urllib.request.urlopen(url, timeout=60) as page:
                assert page.status == 200
        finally:
            server.terminate()
