"""The digest of a user's code: a hash of its file and the local modules that it imports."""

from __future__ import annotations

import ast
import hashlib
import inspect
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from zipimport import zipimporter

from infeed_server.config.importer import find_spec

_INSTALLED = tuple(
    f"{Path(folder).resolve()}/"
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)
"""Folders of modules that are not local: Python's own, and installed packages."""

_INSTALLED_NAMES = frozenset({"site-packages", "dist-packages"})
"""Names of such folders elsewhere, for example in another environment on PYTHONPATH."""


@cache
def own_packages() -> frozenset[str]:
    """Returns infeed's packages, including the plug-ins in its wheel, as its entry points name
    them. The fingerprint covers changes of infeed itself by a number."""
    offers = distribution("infeed").entry_points
    return frozenset({offer.module.partition(".")[0] for offer in offers} | {"infeed_server"})


def code_digest(function: Any) -> str:
    """Returns a hash that changes whenever the code of a function, class or module may have
    changed. It covers the defining file and, transitively, the local modules that the file's import
    statements name. Files are found by name, not executed, so the digest is independent of what the
    process has imported."""
    try:
        file = Path(inspect.getsourcefile(function) or "")
        source = _read(file)
    except (OSError, TypeError):
        # A callable object or interactive code: only its name is known.
        named = function if hasattr(function, "__qualname__") else type(function)
        source = f"{named.__module__}:{named.__qualname__}".encode()
        return hashlib.sha256(source).hexdigest()
    digest = hashlib.sha256(source)
    is_module = inspect.ismodule(function)
    module = function if is_module else sys.modules.get(getattr(function, "__module__", ""))
    package = getattr(module, "__package__", None) or ""
    for name, imported in sorted(_local_modules(source, package).items()):
        if imported.resolve() != file.resolve():
            digest.update(f"\n{name}\n".encode() + _read(imported))
    return digest.hexdigest()


def _local_modules(source: bytes, package: str) -> dict[str, Path]:
    """Returns the files of the local modules that the source imports, transitively, by name."""
    found: dict[str, Path] = {}
    pending = list(_imported_names(source, package))
    seen = set(pending)
    while pending:
        name = pending.pop()
        spec = find_spec(name)
        file = _local_file(spec)
        if spec is None or file is None:
            continue
        found[name] = file
        inner = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        names = _imported_names(_read(file), inner)
        pending += [other for other in names if other not in seen]
        seen.update(names)
    return found


@lru_cache(maxsize=1024)
def _imported_names(source: bytes, package: str) -> tuple[str, ...]:
    """Returns the absolute names that may be modules: of imports, and of their packages."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a file that Python cannot run as it stands
        return ()
    return tuple(sorted({part for name in _imports(tree, package) for part in _parents(name)}))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([base] if base else [])])
            # A name imported from a package can be a module.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _parents(name: str) -> Iterator[str]:
    """Yields `a`, `a.b`, `a.b.c` for `a.b.c`, unless `a` belongs to Python or infeed."""
    steps = name.split(".")
    if steps[0] not in sys.stdlib_module_names and steps[0] not in own_packages():
        for end in range(1, len(steps) + 1):
            yield ".".join(steps[:end])


def _local_file(spec: ModuleSpec | None) -> Path | None:
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin).resolve()
    is_installed = str(file).startswith(_INSTALLED) or not _INSTALLED_NAMES.isdisjoint(file.parts)
    return None if is_installed else file


def _read(file: Path) -> bytes:
    """Returns the content of a file, which may be in a ZIP on the search path. Raises `OSError`."""
    archive = next((parent for parent in file.parents if parent.is_file()), None)
    if archive is None:
        return file.read_bytes()
    return bytes(zipimporter(str(archive)).get_data(str(file)))
