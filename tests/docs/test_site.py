"""Tests of the site of `make docs`: links and anchors of its HTML, API pages, search."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tools.site.__main__ import OTHER_PAGES, ROOT, build

import infeed


class Page(HTMLParser):
    """The ids of a page, and what it links to and loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.update(value for name in ("id", "name") if (value := found.get(name)))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        elif tag in ("img", "script", "source", "video") and found.get("src"):
            self.loaded.append(str(found["src"]))
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loaded.append(str(found["href"]))


def broken(site: Path) -> tuple[list[str], int]:
    """Returns the links whose file or anchor is missing, and the number of links of the site."""
    pages = {file: Page(file) for file in sorted(site.rglob("*.html"))}
    result, number = [], 0
    for file, page in pages.items():
        if file.name == "404.html":  # whose links are from the root of a host
            continue
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            number += 1
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and anchor not in pages[target].ids):
                result.append(f"{file.relative_to(site)}: {link}")
    return result, number


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the built site."""
    return build(tmp_path_factory.mktemp("site"))


def test_links_and_anchors_have_a_target(site: Path) -> None:
    found, number = broken(site)
    assert found == []
    assert number > 1000


def test_every_page_is_built_and_loads_nothing_from_other_hosts(site: Path) -> None:
    names = [path.stem for path in (ROOT / "docs").glob("*.md")]
    names += [Path(name).stem for name in OTHER_PAGES.values()]
    for name in names:
        loaded = Page(site / f"{name}.html").loaded
        assert [link for link in loaded if urlsplit(link).netloc] == []
        assert f"{name}.md" in (site / "llms.txt").read_text()


def test_api_pages_have_every_public_name(site: Path) -> None:
    ids = Page(site / "api-feeds.html").ids | Page(site / "api-errors.html").ids
    public = {f"infeed.{name}" for name in infeed.__all__ if name[0] != "_"}
    assert {name for name in public if f"{name}" not in ids} == set()
    assert "prefetch_bytes</code>: bound on the prefetched batches" in (
        site / "api-feeds.html"
    ).read_text(encoding="utf-8")


def test_search_index_has_the_texts_of_pages(site: Path) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    with_cursor = {
        item["location"].partition("#")[0]
        for item in index["items"]
        if "cursor" in item["text"].lower()
    }
    assert {"trainers.html", "jax.html", "api-feeds.html"} <= with_cursor
