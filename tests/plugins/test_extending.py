"""The package of docs/extending.md, installed and served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomllib
from tests.harness import doc_blocks
from tests.harness.packages import write_package

import infeed
from infeed.shared.doors import Door
from infeed_server.sources import registry
from infeed_server.starter import drafter
from infeed_server.starter.detect import starter_for


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The page's package on `sys.path`; gives the page's pipelines."""
    blocks = doc_blocks.read("docs/extending.md")
    project, module, *pipelines = [block.code for block in blocks]
    groups = tomllib.loads(project)["project"]["entry-points"]
    entry_points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in groups.items()
    )
    write_package(tmp_path / "packages", "infeed-fixed", entry_points, infeed_fixed=module)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    for module_of_door, group in ((registry, "infeed.sources"), (drafter, "infeed.starters")):
        monkeypatch.setattr(module_of_door, "_DOOR", Door(group, "object"))
    return pipelines


def test_a_format_of_another_package_is_served(
    package: list[str], serve: Any, tmp_path: Path
) -> None:
    records = np.arange(4 * 3073, dtype=np.uint8).reshape(4, -1)
    (tmp_path / "data").mkdir()
    for number in range(2):
        records[2 * number :][:2].tofile(tmp_path / "data" / f"{number}.fixed")
    server = serve(package[0].replace("size: 64", "size: 4"))
    with infeed.connect(str(server.address), "records", epochs=1) as feed:
        assert [batch["record"].tolist() for batch in feed] == [records.tolist()]
    drafts = starter_for(str(tmp_path / "data"), tmp_path).drafts
    assert drafts["data"].source == {"fixed": "data/*.fixed", "length": 3073}
