"""The layers of the packages: imports point one way, in no circle, and the client stays light."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Mapping, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "infeed": ROOT / "client",
    "infeed_server": ROOT / "server",
    "infeed_tfdata": ROOT / "tfdata",
}
"""A package's folder. A package imports no package below it."""

# Lowest first. A folder or module imports its own modules and what stands in a lower row.
LAYERS = {
    "infeed": (
        "v1",
        "shared",
        "http2",
        "batch cursor stats transport",
        "wire rpc ranks run",
        "prefetch",
        "feed",
        "client slots",
        "adapters",
        "__init__",
        "audit grain jax keras testing torch",
        "loadtest tensorflow",
        "cli",
        "__main__",
    ),
    "infeed_server": (
        "version imports processes",
        "config order",
        "cache",
        "storage",
        "sources",
        "transforms",
        "pipeline",
        "engines",
        "observe dashboard",
        "serving control",
        "rpc",
        "runtime",
        "check starter",
        "run",
        "__init__ demo pack profile",
        "cli",
    ),
    "infeed_tfdata": (
        "metrics options order rpc",
        "trainer graph",
        "roles",
        "gateway",
        "commands engine",
        "__init__",
    ),
}
SHARED = ("shared", "v1", "wire")
"""What the server imports of the client, up to the layer of `check`."""

TOOLS = ("check", "demo", "pack", "profile", "starter")
"""What the command line alone imports of the server: without them the rest is complete."""

CLIENT_REQUIREMENTS = {
    *("google", "h2", "ml_dtypes", "numpy", "opentelemetry", "typing_extensions", "xxhash"),
}
"""What the client's core imports of others, `typing_extensions` for type checkers alone, and
`opentelemetry` where a provider is given; adapters and command line have more."""


# A package's modules and folders have this many lines at most; a folder of `infeed_tfdata` counts
# with it, and generated modules nowhere.
BUDGETS = {
    "infeed": 1673,
    "infeed.adapters": 250,
    "infeed.audit": 700,
    "infeed.cli": 1966,
    "infeed.grain": 400,
    "infeed.http2": 800,
    "infeed.jax": 600,
    "infeed.keras": 750,
    "infeed.loadtest": 1950,
    "infeed.prefetch": 2363,
    "infeed.rpc": 663,
    "infeed.shared": 2120,
    "infeed.tensorflow": 250,
    "infeed.torch": 711,
    "infeed.wire": 1062,
    "infeed_server": 170,
    "infeed_server.cache": 730,
    "infeed_server.check": 850,
    "infeed_server.cli": 1821,
    "infeed_server.config": 910,
    "infeed_server.control": 700,
    "infeed_server.dashboard": 50,
    "infeed_server.demo": 266,
    "infeed_server.engines": 3808,
    "infeed_server.observe": 1450,
    "infeed_server.order": 780,
    "infeed_server.pack": 1293,
    "infeed_server.pipeline": 1712,
    "infeed_server.processes": 850,
    "infeed_server.profile": 900,
    "infeed_server.rpc": 1528,
    "infeed_server.run": 1476,
    "infeed_server.runtime": 850,
    "infeed_server.serving": 610,
    "infeed_server.sources": 7405,
    "infeed_server.starter": 1544,
    "infeed_server.storage": 1393,
    "infeed_server.transforms": 2155,
    "infeed_tfdata": 3330,
}

MAX_ARGUMENTS = 8
"""Arguments of a function without `self`; more, and some of them are one object of options."""


def modules() -> dict[str, Path]:
    """Returns every module by its full name."""
    found = {}
    for folder in PACKAGES.values():
        for path in sorted(folder.rglob("*.py")):
            *parts, last = path.relative_to(folder).with_suffix("").parts
            found[".".join(parts if last == "__init__" else [*parts, last])] = path
    return found


MODULES = modules()


@cache
def imports(path: Path) -> Set[str]:
    """Returns the modules that a file imports, anywhere in it, by their full names.

    Relative imports are not looked for: ruff refuses them.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
    return found


def row(module: str) -> int:
    """Returns the row of a module, by its first part below the package."""
    package, _, rest = module.partition(".")
    part = rest.partition(".")[0] or "__init__"
    for index, names in enumerate(LAYERS[package]):
        if part in names.split():
            return index
    raise AssertionError(f"{module} is in no row of LAYERS: add {part!r}")


def wrong_imports(module: str, imported: Set[str]) -> list[str]:
    """Returns what a module may not import, of these packages."""
    package, _, rest = module.partition(".")
    wrong = []
    for other in sorted(imported):
        other_package, _, other_rest = other.partition(".")
        if other_package not in PACKAGES:
            continue
        if other_package == package:
            same = rest.partition(".")[0] == other_rest.partition(".")[0]
            if not same and row(other) >= row(module):
                wrong.append(other)
        elif [*PACKAGES].index(other_package) > [*PACKAGES].index(package):
            wrong.append(other)
        elif package == "infeed_server" and row(module) <= row("infeed_server.check"):
            shared = any(f"{other_rest}.".startswith(f"{name}.") for name in SHARED)
            wrong += [] if shared else [other]
    return wrong


def uses_grpc(imported: Set[str]) -> bool:
    """Returns whether these modules include one of grpcio or its companions."""
    return any(name.partition(".")[0].partition("_")[0] == "grpc" for name in imported)


def budgeted(module: str) -> str:
    """Returns the package in whose budget a module counts."""
    package, *parts = module.split(".")
    is_folder = bool(parts) and (PACKAGES[package] / package / parts[0]).is_dir()
    return f"{package}.{parts[0]}" if is_folder and package != "infeed_tfdata" else package


def over_budget(lines: Mapping[str, int], budgets: Mapping[str, int]) -> list[str]:
    """Returns a problem for each package with more lines than its budget, or without one."""
    return [
        f"{package} has {count} lines of {budgets.get(package, 0)}: delete or share code, or raise "
        "BUDGETS in tests/test_layers.py and say in the commit what goes elsewhere"
        for package, count in sorted(lines.items())
        if count > budgets.get(package, 0)
    ]


def many_arguments(source: str) -> dict[str, int]:
    """Returns the functions with too many arguments, and their numbers."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            all_of_them = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            count = len(
                [argument for argument in all_of_them if argument.arg not in ("self", "cls")]
            )
            if count > MAX_ARGUMENTS:
                found[node.name] = count
    return found


def test_the_page_of_the_architecture_has_these_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    table, text = section.partition("\n|---|---|---|\n")[2].split("\n\n")[:2]
    rows = [line.split("|")[1:-1] for line in table.splitlines()]
    for column, package in enumerate(PACKAGES):
        layers = [layer.split() for layer in LAYERS[package]]
        named = re.findall(r"`(\w+)`", " ".join(row[column] for row in rows))
        assert named == [name for layer in layers for name in layer if "__" not in name]
    assert set(SHARED) <= set(re.findall(r"`([\w.]+)`", text))


def test_modules_import_lower_layers_only() -> None:
    found = {module: wrong_imports(module, imports(path)) for module, path in MODULES.items()}
    assert {module: wrong for module, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("tool", TOOLS)
def test_only_the_command_line_imports_a_tool(tool: str) -> None:
    allowed = tuple(f"infeed_server.{part}." for part in (tool, "cli"))
    users = {
        module
        for module, path in MODULES.items()
        if any(f"{name}.".startswith(f"infeed_server.{tool}.") for name in imports(path))
    }
    assert {module for module in users if not f"{module}.".startswith(allowed)} == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: imports(path) & MODULES.keys() - {module} for module, path in MODULES.items()}
    TopologicalSorter(graph).prepare()


def test_the_core_of_the_client_needs_light_packages_only() -> None:
    core = [name for name in MODULES if name.startswith("infeed.") and row(name) <= row("infeed")]
    for module in core:
        # A package named after a framework loads it.
        if not module.startswith("infeed.shared.tensorflow"):
            tops = {name.partition(".")[0] for name in imports(MODULES[module])}
            assert tops <= {"infeed"} | CLIENT_REQUIREMENTS | sys.stdlib_module_names, module


def test_no_file_of_the_client_imports_grpc() -> None:
    files = list(PACKAGES["infeed"].rglob("*.py"))
    assert any(file.name.endswith("_pb2.py") for file in files)  # generated modules too
    assert [str(file) for file in files if uses_grpc(imports(file))] == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("infeed.wire.batch", "infeed.feed"),
        ("infeed.feed", "infeed_server"),
        ("infeed_server.engines.base", "infeed_server.rpc.server"),
        ("infeed_server.engines.base", "infeed.rpc.call"),
        ("infeed_server.runtime.server", "infeed_tfdata.engine"),
        ("infeed.tensorflow", "infeed_tfdata.trainer.distribute"),
        ("infeed_tfdata.roles.run", "infeed_tfdata.gateway.client"),
    ],
)
def test_an_import_of_a_higher_layer_is_found(module: str, imported: str) -> None:
    assert wrong_imports(module, {imported}) == [imported]


def test_every_package_keeps_its_budget_of_lines() -> None:
    lines: Counter[str] = Counter()
    for module, path in MODULES.items():
        if not module.startswith("infeed.v1"):
            lines[budgeted(module)] += len(path.read_text().splitlines())
    assert not over_budget(lines, BUDGETS)
    assert lines.keys() == BUDGETS.keys(), "a package of BUDGETS does not exist: delete its line"


def test_no_function_has_more_than_eight_arguments() -> None:
    for module, path in MODULES.items():
        assert many_arguments(path.read_text()) == {}, module
