"""The layers of the packages: imports point one way, in no circle, and the client stays light. The
core knows no plug-in."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Set
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "infeed": ROOT / "client",
    "infeed_server": ROOT / "server",
}
"""A package's folder. A package imports no package below it."""

PLUGINS = {
    package.name: package.parent for package in sorted((ROOT / "plugins").glob("*/infeed_*"))
}
"""Packages that the core finds by entry points. Folders of formats, frameworks and tools do not
import each other."""

ROOMS = {
    "infeed_augment": (
        "infeed.shared",
        "infeed_augment",
        *(f"infeed_server.{name}" for name in ("config", "pipeline", "sources", "transforms")),
    ),
    "infeed_formats": (
        "infeed.shared",
        *(
            f"infeed_formats.{name}"
            for name in (
                *("arrays", "columns", "described", "elements", "index_cache", "indexing"),
                *("tfrecord", "values"),
            )
        ),
        *(f"infeed_server.{name}" for name in ("config", "sources", "storage")),
        "infeed_tools.init",
    ),
    "infeed_frameworks": (
        "infeed",
        *(f"infeed_frameworks.{name}" for name in ("feed_adapter", "named_fields", "keras")),
    ),
    "infeed_mixtures": (
        "infeed.shared",
        "infeed_mixtures",
        *(f"infeed_server.{name}" for name in ("config", "order", "pipeline", "sources")),
        *(f"infeed_server.{name}" for name in ("storage", "transforms")),
    ),
    "infeed_observe": ("infeed.shared", "infeed.v1", "infeed_server", "infeed_observe"),
    "infeed_python": (
        "infeed.shared",
        *(f"infeed_formats.{name}" for name in ("columns", "elements", "values")),
        "infeed_server",
        "infeed_python",
    ),
    "infeed_runs": ("infeed", "infeed_server", "infeed_runs", "infeed_tools.peek"),
    "infeed_service": (
        *("infeed", "infeed_formats", "infeed_python", "infeed_server", "infeed_service"),
        *(f"infeed_observe.{name}" for name in ("http", "metrics")),
        *(f"infeed_frameworks.{name}" for name in ("keras", "tensorflow")),
    ),
    "infeed_tools": (
        "infeed",
        *(f"infeed_formats.{name}" for name in ("annotations", "columns", "tfrecord", "values")),
        "infeed_python",
        "infeed_server",
        "infeed_observe.pipeline_reports",
        "infeed_observe.usage",
        "infeed_tools.audit",
        "infeed_tools.check",
        "infeed_tools.init",
    ),
}
"""What plug-ins import of the others."""

# Lowest first. A folder or module imports its own modules and what stands in a lower row.
LAYERS = {
    "infeed": (
        "v1",
        "shared",
        "http2",
        "batch course stats transport",
        "cursor",
        "wire rpc ranks run",
        "prefetch",
        "feed",
        "client",
        "adapters served",
        "__init__",
        "audit grain jax keras loadtest tensorflow testing torch",
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
        "serving",
        "rpc",
        "runtime",
        "__init__",
        "cli",
    ),
}
NAMED = ("grain", "jax", "keras", "tensorflow", "torch")
"""Modules of the client whose names plug-ins add. They import them for type checkers alone."""

SHARED = ("shared", "v1", "wire")
"""What the server imports of the client, up to the layer of `runtime`."""

CLIENT_REQUIREMENTS = {
    *("google", "h2", "ml_dtypes", "numpy", "opentelemetry", "typing_extensions", "xxhash"),
}
"""What the client's core imports of others, `typing_extensions` for type checkers alone, and
`opentelemetry` where a provider is given; adapters and command line have more."""


OTHER_WORDS = {"infeed_server.serving.auth", "infeed_frameworks.torch.loaders"}
"""Modules whose tokens give access, or whose `dataset` is an attribute of PyTorch's."""


def modules() -> dict[str, Path]:
    """Returns every module by its full name."""
    found = {}
    for folder in (PACKAGES | PLUGINS).values():
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
    tree = ast.parse(path.read_text())
    if path.parent == PACKAGES["infeed"] / "infeed" and path.stem in NAMED:
        tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
    for node in ast.walk(tree):
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
    if package in PLUGINS:
        allowed = tuple(f"{room}." for room in (*ROOMS[package], ".".join(module.split(".")[:2])))
        own = {name for name in imported if name.partition(".")[0] in PACKAGES | PLUGINS}
        return sorted(name for name in own if not f"{name}.".startswith(allowed))
    for other in sorted(imported):
        if other.partition(".")[0] in PLUGINS:
            wrong.append(other)
        other_package, _, other_rest = other.partition(".")
        if other_package not in PACKAGES:
            continue
        if other_package == package:
            same = rest.partition(".")[0] == other_rest.partition(".")[0]
            if not same and row(other) >= row(module):
                wrong.append(other)
        elif [*PACKAGES].index(other_package) > [*PACKAGES].index(package):
            wrong.append(other)
        elif package == "infeed_server" and row(module) <= row("infeed_server.runtime"):
            shared = any(f"{other_rest}.".startswith(f"{name}.") for name in SHARED)
            wrong += [] if shared else [other]
    return wrong


def named_kinds(source: str) -> set[str]:
    """Returns the kinds of plug-ins' sources that are strings of a module."""
    sources = entry_points(group="infeed.sources")
    kinds = {entry.name for entry in sources if entry.module.partition(".")[0] in PLUGINS}
    strings = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return kinds & strings


def uses_grpc(imported: Set[str]) -> bool:
    """Returns whether these modules include one of grpcio or its companions."""
    return any(name.partition(".")[0].partition("_")[0] == "grpc" for name in imported)


def test_the_page_of_the_architecture_has_these_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    lists = re.findall(r"^- \*\*.*?(?=\n- |\n\n)", section, re.MULTILINE | re.DOTALL)
    for listed, package in zip(lists, PACKAGES, strict=True):
        layers = [layer.split() for layer in LAYERS[package]]
        named = re.findall(r"`(\w+)`", listed)
        assert named == [name for layer in layers for name in layer if "__" not in name]
    assert set(SHARED) <= set(re.findall(r"`([\w.]+)`", section))


def test_packages_have_types() -> None:
    folders = [folder / name for name, folder in (PACKAGES | PLUGINS).items()]
    assert [folder.name for folder in folders if not (folder / "py.typed").exists()] == []


def test_modules_import_lower_layers_only() -> None:
    found = {module: wrong_imports(module, imports(path)) for module, path in MODULES.items()}
    assert {module: wrong for module, wrong in found.items() if wrong} == {}


def test_the_core_names_no_format() -> None:
    assert named_kinds("KIND = 'webdataset'") == {"webdataset"}
    for module, path in MODULES.items():
        if module.partition(".")[0] in ("infeed", "infeed_server") and module not in OTHER_WORDS:
            assert named_kinds(path.read_text()) == set(), module


def test_a_command_without_the_servers_extra_imports_none_of_it() -> None:
    light = [entry.module for entry in entry_points(group="infeed.commands") if not entry.extras]
    assert "infeed_tools.peek.command" in light
    for module, path in MODULES.items():
        if module.startswith(tuple(name.removesuffix("command") for name in light)):
            assert not [name for name in imports(path) if name.startswith("infeed_server")], module


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
        ("infeed_server.runtime.server", "infeed_service.engine"),
        ("infeed_server.runtime.server", "infeed_observe.instrument"),
        ("infeed.tensorflow", "infeed_service.trainer.distribute"),
        ("infeed_server.sources.registry", "infeed_formats.webdataset"),
        ("infeed_formats.webdataset.source", "infeed_formats.mds.source"),
        ("infeed_formats.webdataset.source", "infeed_server.engines.base"),
    ],
)
def test_an_import_of_a_higher_layer_is_found(module: str, imported: str) -> None:
    assert wrong_imports(module, {imported}) == [imported]
