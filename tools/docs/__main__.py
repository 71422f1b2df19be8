"""The program `python -m tools.docs [--check]`: tables of all pages, written or compared."""

from __future__ import annotations

import sys

from tools.docs import all_tables, run
from tools.docs.pages import ROOT

if sys.argv[1:] not in ([], ["--check"]):
    sys.exit("usage: python -m tools.docs [--check]")
sys.exit(run(ROOT, all_tables, check="--check" in sys.argv))
