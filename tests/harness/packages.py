"""Packages as pip leaves them: a module, and the metadata with its entry points."""

from __future__ import annotations

from pathlib import Path


def write_package(folder: Path, name: str, entry_points: str, **modules: str) -> None:
    """Writes a package of version 1.0 to a folder that is, or will be, on `sys.path`."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
