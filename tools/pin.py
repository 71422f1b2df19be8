"""Prints requirements/dev.txt: the exact version of everything that is installed here."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

HEADER = """\
# The exact versions behind `make`, written by `make pin`: everything that the dev, server and
# tensorflow extras bring, and what builds the package. The containers use it as constraints.
# Needs Python 3.11 or newer.
"""

# What this repository is, and what a virtual environment brings by itself.
LEFT_OUT = {"infeed", "pip", "setuptools", "wheel"}

# `make bench` alone installs these.
BENCH = Path(__file__).parent.parent / "requirements/bench.txt"


def normalized(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    pins = {normalized(item.metadata["Name"]): item.version for item in distributions()}
    left_out = LEFT_OUT | {line.partition("==")[0] for line in BENCH.read_text().splitlines()}
    lines = [f"{name}=={pins[name]}" for name in sorted(pins) if name not in left_out]
    print(HEADER + "\n".join(lines))


if __name__ == "__main__":
    main()
