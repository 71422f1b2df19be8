"""A census of the pages' code blocks: each has a language, and a test that runs it or a reason."""

from __future__ import annotations

import re

import pytest
from tests.harness import doc_blocks

RUN_BY = {
    "diff": "tests/examples/test_diffs.py",
    "python": "tests/docs/test_programs.py",
    "sh": "tests/docs/test_commands.py",
    "toml": "tests/plugins/test_extending.py",
    "yaml": "tests/docs/test_definitions.py",
}
"""Language → the tests that run its blocks, except the pages of `test_programs.TESTED_BY` and
`doc_blocks.FOLLOWED`."""

SHOWN = {"json", "text"}
"""Languages of pictures and outputs."""

NOT_RUN = {
    "a file for Kustomize": r"^kind: Kustomization$",
    "a file of tokens": r"^tokens:$",
    "listens on all interfaces": r"\b0\.0\.0\.0:",
    "needs a Docker engine": r"\b(docker|compose|DATA_DIR)\b",
    "needs a project of Google Cloud": r"^gcloud ",
    "needs a cluster of Kubernetes": r"^kubectl ",
    "needs a collector": r"\bOTEL_",
    "needs several hosts": r"\.internal:",
    "needs the certificate of a server elsewhere": r"\binfeed\.TLS\(",
    "stops a server that was started elsewhere": r"^kill -TERM \$PID",
}
"""Begin of a reason → what each block has that is not run for it."""


@pytest.mark.parametrize("page", doc_blocks.PAGES)
def test_blocks_have_a_language(page: str) -> None:
    for block in doc_blocks.read(page):
        assert block.language in {*RUN_BY, *SHOWN}, f"{block} has a language that is not run"
        if block.language in SHOWN:
            assert block.not_run is None, f"{block} is not run in any case"
            shown = block.code.lstrip()
            assert not re.match(
                r"(infeed [a-z]+ [^ (]|\$ |pip |docker |make |import |from \w+ import )", shown
            ), f"{block} is code"


@pytest.mark.parametrize("page", doc_blocks.PAGES)
def test_marks_stand_above_blocks(page: str) -> None:
    text = (doc_blocks.ROOT / page).read_text(encoding="utf-8")
    marked = sum(block.not_run is not None for block in doc_blocks.read(page))
    assert text.count("<!-- not run") == marked, f"{page} has a mark that belongs to no block"


def test_reasons_not_to_run_are_true_of_their_blocks() -> None:
    blocks = [block for page in doc_blocks.PAGES for block in doc_blocks.read(page)]
    used = set()
    for block in blocks:
        if block.not_run is not None:
            reason = re.split("[;,]", block.not_run)[0]
            assert reason in NOT_RUN, f"{block} is not run, for a reason that is not in NOT_RUN"
            assert re.search(NOT_RUN[reason], block.code, re.MULTILINE), f"{block}: not {reason}"
            used.add(reason)
    assert used == {*NOT_RUN}
