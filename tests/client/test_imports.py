"""Imports point one way, and `import infeed` stays light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "client" / "infeed"
SERVER = ROOT / "server" / "infeed_server"

# The layers of the client, lowest first; a module imports from its own layer and below.
CLIENT_LAYERS = (
    {"v1"},
    {"errors", "keepalive"},
    {"datatypes", "status", "target", "tls", "cipher"},
    {"finish_spec"},
    {"spec"},
    {"buffers", "checksum", "link", "spans", "sightings"},
    {"chunk", "inflow", "secure"},
    {"http2"},
    {"credentials"},
    {"wire", "finish", "batch", "cursor", "handoff", "window", "stats", "call", "ledger"},
    {"members"},
    {"outcome"},
    {"counts", "audited"},
    {"registered", "inquiry"},
    {"transport", "assembly", "sense"},
    {"job"},
    {"pool"},
    {"supplier"},
    {"stream"},
    {"feed"},
    {"__init__"},
    {"audit"},
    {"pull"},
    {"tensorflow", "jax", "torch", "testing"},
    {"cli", "commands", "__main__"},
)
# The layers of the server. `service` may use all below it, and so on.
SERVER_LAYERS = (
    {"version", "imports"},
    {"config", "http2"},
    {"sources", "order", "transforms"},
    {"pipeline"},
    {"cluster"},
    {"engines"},
    {"service"},
    {"rpc"},
    {"control", "runtime"},
    {"__init__", "cli", "demo", "progress", "roles"},
)
SHARED = {
    "v1",
    "spec",
    "wire",
    "errors",
    "finish",
    "keepalive",
    "pull",
    "tls",
    "cipher",
    "registered",
    "inquiry",
}
HEAVY = ("tensorflow", "jax", "torch", "typer", "rich", "pydantic", "yaml")
LIGHT = {"infeed", "numpy", "h2", "google", "ml_dtypes"}


def imports(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it, in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            module = node.module or ""
            found.add(module)
            if module in ("infeed", "infeed_server"):
                found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def modules(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*.py")) if "v1" not in path.parts]


def part(module: str, package: str) -> str | None:
    """`stream` of `infeed.stream`; None of a module of another package."""
    head, *rest = module.split(".")
    if head != package:
        return None
    return rest[0] if rest else "__init__"


def layer(part: str, layers: tuple[set[str], ...]) -> int:
    for index, parts in enumerate(layers):
        if part in parts:
            return index
    raise AssertionError(f"{part} stands in no layer: add it to this test")


def part_of(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(CLIENT), ids=lambda path: path.stem)
def test_client_imports_point_down(path: Path) -> None:
    mine = layer(part_of(path, CLIENT), CLIENT_LAYERS)
    for module in imports(path):
        assert not module.startswith("infeed_server"), f"{path.name} imports the server"
        other = part(module, "infeed")
        known = {name for names in CLIENT_LAYERS for name in names}
        if other in known and other != "__init__":
            assert layer(other, CLIENT_LAYERS) <= mine, f"{path.name} imports {module}"


@pytest.mark.parametrize(
    "path", modules(SERVER), ids=lambda path: str(path.relative_to(SERVER).with_suffix(""))
)
def test_server_imports_point_down(path: Path) -> None:
    mine = layer(part_of(path, SERVER), SERVER_LAYERS)
    for module in imports(path):
        shared = part(module, "infeed")
        if shared not in (None, "__init__") and mine < layer("cli", SERVER_LAYERS):
            assert shared in SHARED, f"{path.relative_to(SERVER)} imports {module}"
        other = part(module, "infeed_server")
        if other not in (None, "__init__") and other in {
            name for names in SERVER_LAYERS for name in names
        }:
            assert layer(str(other), SERVER_LAYERS) <= mine, f"{path} imports {module}"


@pytest.mark.parametrize("path", modules(CLIENT), ids=lambda path: path.stem)
def test_the_core_needs_only_the_light_packages(path: Path) -> None:
    if layer(part_of(path, CLIENT), CLIENT_LAYERS) > layer("__init__", CLIENT_LAYERS):
        return  # adapters and the cli say in their own tests what they need
    tops = {module.split(".")[0] for module in imports(path)}
    assert tops <= LIGHT | sys.stdlib_module_names


STEPS = {
    "infeed": "import infeed",
    "audit": "import infeed.audit",
    "inquiry": "import infeed.inquiry",
    "commands": "import infeed.cli, infeed_server.cli",
    "tensorflow": "import tensorflow",
}
"""What one interpreter imports, one after the other, and never the last: that is known to fail."""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """The top packages that a fresh interpreter holds after each of the steps."""
    script = (
        "import json, sys\n"
        "sys.modules['tensorflow'] = None\n"
        "found = {}\n"
        f"for name, code in {STEPS}.items():\n"
        "    try:\n"
        "        exec(code)\n"
        "    except ImportError:\n"
        "        found['refused'] = [name]\n"
        "    tops = {name.partition('.')[0] for name, module in sys.modules.items() if module}\n"
        "    found[name] = sorted(tops)\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=200
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: set(tops) for name, tops in found.items()}


@pytest.mark.parametrize("step", ["infeed", "audit", "inquiry"])
def test_what_a_trainer_imports_is_light(loaded: dict[str, set[str]], step: str) -> None:
    assert "infeed" in loaded[step]
    assert not loaded[step] & set(HEAVY)


def test_the_command_line_loads_no_tensorflow_before_it_must(loaded: dict[str, set[str]]) -> None:
    assert "infeed_server" in loaded["commands"]
    assert loaded["refused"] == {"tensorflow"}


def test_the_light_check_can_fail(loaded: dict[str, set[str]]) -> None:
    assert loaded["commands"] & set(HEAVY)


def test_the_direction_check_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "wire.py"
    bad.write_text("def f():\n    from infeed import feed\n    import infeed_server.rpc\n")
    found = imports(bad)
    assert {"infeed.feed", "infeed_server.rpc"} <= found
    assert layer("feed", CLIENT_LAYERS) > layer("wire", CLIENT_LAYERS)
    with pytest.raises(AssertionError, match="no layer"):
        layer("gadgets", CLIENT_LAYERS)
