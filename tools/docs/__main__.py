"""The command `python -m tools.docs [--check]`: tables of all pages, written or compared."""

from __future__ import annotations

import sys

from tools.docs.pages import ROOT
from tools.docs.stub import stub_tensorflow

if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: python -m tools.docs [--check]")
    stub_tensorflow()
    # Imports the packages, which import TensorFlow.
    from tools.docs.catalog import all_tables
    from tools.docs.command import run

    sys.exit(run(ROOT, all_tables, check="--check" in sys.argv))
