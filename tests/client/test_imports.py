"""Imports of `import infeed`, its audit and its command line."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

import infeed

HEAVY = (
    "grpc",
    "tensorflow",
    "jax",
    "grain",
    "keras",
    "torch",
    "typer",
    "rich",
    "pydantic",
    "yaml",
    "opentelemetry",
)

STEPS = {
    "infeed": "import infeed",
    "audit": "from infeed.audit import audit",
    "service rpc": "import infeed_service.rpc",
    "cli": "import infeed.cli; infeed.cli.new_app()",
    "tensorflow": "import tensorflow",
}
"""Imports of one interpreter, one after another; the last one is made to fail."""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """The packages that a new interpreter has loaded after each of the steps."""
    script = (
        "import json, sys\n"
        "sys.modules['tensorflow'] = None\n"
        "loaded = {}\n"
        f"for name, code in {STEPS}.items():\n"
        "    try:\n"
        "        exec(code)\n"
        "    except ImportError:\n"
        "        loaded['failed'] = [name]\n"
        "    names = {name.partition('.')[0] for name, module in sys.modules.items() if module}\n"
        "    loaded[name] = sorted(names)\n"
        "print(json.dumps(loaded))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=200
    )
    loaded = json.loads(result.stdout.splitlines()[-1])
    return {name: set(packages) for name, packages in loaded.items()}


@pytest.mark.parametrize("step", ["infeed", "audit", "service rpc"])
def test_trainer_loads_no_heavy_package(loaded: dict[str, set[str]], step: str) -> None:
    assert "infeed" in loaded[step]
    assert not loaded[step] & set(HEAVY)


def test_command_line_loads_tensorflow_lazily(loaded: dict[str, set[str]]) -> None:
    assert "infeed_server" in loaded["cli"]
    assert loaded["failed"] == {"tensorflow"}


def test_check_of_heavy_packages_can_fail(loaded: dict[str, set[str]]) -> None:
    assert loaded["cli"] & set(HEAVY)


def test_adapter_without_its_framework_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "jax"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("infeed.jax")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(infeed.MissingExtraError, match=r"pip install 'infeed\[jax\]'"):
        importlib.import_module("infeed.jax")
