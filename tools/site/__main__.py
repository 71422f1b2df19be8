"""The program `python -m tools.site [FOLDER]`: a site of the pages, with search, in build/.

The pages of docs/ stay as GitHub shows them. This program copies them and other pages of the
repository into a folder, rewrites their links, adds the API pages, and runs Zensical there.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomllib

import infeed
from infeed.shared.errors import BY_REASON, InfeedError

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


class SiteError(Exception):
    """A page is missing from the navigation, or Zensical found a mistake."""


OTHER_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
    "examples/notebooks/first.md": "notebook-first.md",
    "examples/notebooks/verdict.md": "notebook-verdict.md",
}
"""Pages outside of docs/, and their names on the site."""

_ADAPTERS = {
    "jax": ["connect", "DeviceFeed"],
    "torch": ["connect", "TensorFeed", "FeedDataset", "FeedCallback"],
    "keras": ["generator", "FeedCheckpoint"],
    "tensorflow": ["connect", "from_generator", "shard_of", "TensorFeed"],
    "grain": ["FeedDataset", "Checkpointable", "CheckpointSave", "CheckpointRestore", "read_state"],
}
_TESTING = [
    "infeed.testing.FakeTransport",
    "infeed_tools.audit.run.audit",
    "infeed_tools.audit.counter.DeliveryCounter",
]

_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\(|^\[[^\]]+\]: |\b(?:src|srcset|href)=\")([^)\s\"]+)", re.MULTILINE)
_PICTURES = (".gif", ".jpg", ".png", ".svg", ".webp")


def build(folder: Path, root: Path = ROOT) -> Path:
    """Builds the site of the repository `root` below a folder; returns where it is."""
    config = tomllib.loads((FOLDER / "zensical.toml").read_text(encoding="utf-8"))["project"]
    pages, site = folder / config["docs_dir"], folder / config["site_dir"]
    for old in (pages, site):
        shutil.rmtree(old, ignore_errors=True)
    pages.mkdir(parents=True)
    for name in ("zensical.toml", "site.css"):
        shutil.copy(FOLDER / name, folder if name == "zensical.toml" else pages)
    titles = stage(root, pages, config["extra"]["repository"])
    if titles.keys() != (listed := set(_listed(config["nav"]))):
        differ = ", ".join(sorted(titles.keys() ^ listed))
        raise SiteError(f"tools/site/zensical.toml: nav has other pages than docs/: {differ}")
    command = [sys.executable, "-m", "zensical", "build", "--config-file", folder / "zensical.toml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(  # noqa: S603
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode or not (site / "index.html").exists():
        raise SiteError(f"zensical: status {run.returncode}\n{run.stdout}{run.stderr}")
    write_llms(site, titles, _listed(config["nav"]))
    return site


def stage(root: Path, pages: Path, repository: str) -> dict[str, str]:
    """Writes the pages with the links of the site; returns page → its Markdown."""
    sources = {f"docs/{path.name}": path.name for path in sorted((root / "docs").glob("*.md"))}
    sources |= OTHER_PAGES
    texts = {
        page: rewrite(
            (root / source).read_text(encoding="utf-8"),
            _target(root, pages, source, sources, repository),
        )
        for source, page in sources.items()
    }
    texts |= api_pages()
    for page, text in texts.items():
        (pages / page).write_text(text, encoding="utf-8")
    return texts


def rewrite(text: str, target: Callable[[str], str]) -> str:
    """Returns the Markdown with the target of each link replaced, except in code."""
    code: list[str] = []

    def hide(match: re.Match[str]) -> str:
        code.append(match[0])
        return f"\0{len(code) - 1}\0"

    hidden = _CODE.sub(hide, text)
    linked = _LINK.sub(lambda match: match[1] + target(match[2]), hidden)
    return re.sub(r"\0(\d+)\0", lambda match: code[int(match[1])], linked)


def _target(
    root: Path, pages: Path, source: str, sources: dict[str, str], repository: str
) -> Callable[[str], str]:
    """Returns the function that turns a link of the file `source` into one of the site."""

    def target(link: str) -> str:
        path, _, anchor = link.partition("#")
        if not path or ":" in path:
            return link
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if file in sources or f"{file}/README.md" in sources:
            file = sources.get(file) or sources[f"{file}/README.md"]
        elif file.endswith(_PICTURES):
            copy = pages / "pictures" / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / file, copy)
            return f"pictures/{file}"
        else:
            file = f"{repository}/{file}"
        return f"{file}#{anchor}" if anchor else file

    return target


def api_pages() -> dict[str, str]:
    """Returns the API pages, with the names whose docstrings mkdocstrings inserts."""
    errors = [item.__name__ for item in (InfeedError, *BY_REASON.values())]
    names = [name for name in infeed.__all__ if name not in errors and name[0] != "_"]
    order = ["connect", "Feed", "Batch", "Shard", "Stats", "TLS", "at", "Slot"]
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    adapters = [f"infeed.{module}.{name}" for module, of in _ADAPTERS.items() for name in of]
    return {
        "api-feeds.md": _api_page("Feeds", [f"infeed.{name}" for name in names]),
        "api-errors.md": _api_page("Errors", [f"infeed.{name}" for name in errors]),
        "api-adapters.md": _api_page("Adapters", adapters),
        "api-testing.md": _api_page("Testing and audit", _TESTING),
    }


def _api_page(title: str, names: list[str]) -> str:
    return "\n\n".join([f"# {title}", *(f"::: {name}" for name in names)]) + "\n"


def _listed(nav: list[Any]) -> list[str]:
    """Returns the pages of a navigation, in their order."""
    pages = []
    for entry in nav:
        for item in entry.values() if isinstance(entry, dict) else [entry]:
            pages += _listed(item) if isinstance(item, list) else [item]
    return pages


def write_llms(site: Path, texts: dict[str, str], order: list[str]) -> None:
    """Writes llms.txt: title, address and first sentence of each page, and the pages beside it."""
    lines = ["# infeed\n"]
    for page in order:
        title, first = [*texts[page].split("\n\n"), ""][:2]
        sentence = re.split(r"(?<=\.)\s", " ".join(first.split()))[0]
        (site / page).write_text(texts[page], encoding="utf-8")
        lines.append(f"- [{title.lstrip('# ')}]({page}): {sentence}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        print(f"{build(ROOT / (sys.argv[1] if sys.argv[1:] else 'build')) / 'index.html'}: written")
    except SiteError as error:
        sys.exit(f"error: {error}")
