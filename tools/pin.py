"""Generator of requirements/dev.txt: prints the exact version of each installed distribution."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet

HEADER = """\
# The exact versions used by `make`, written by `make pin`: the dev, server and tensorflow extras,
# and the build requirements. The containers use this file as constraints.
# Requires Python 3.11 or newer.
"""

# Each pin must install on it: users have whichever patch release their distribution ships.
OLDEST_PYTHON = "3.11.0"

# These distributions, and the installer.
EXCLUDED = {"infeed", "infeed-jpeg", "pip"}

# Requirements of a single target, excluded too.
OTHERS = [Path(__file__).parent.parent / "requirements" / "frameworks.txt"]


def normalized(name: str) -> str:
    """Returns a distribution's name in the form that package indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def too_new() -> list[str]:
    """Returns the installed distributions that the oldest Python cannot install."""
    return [
        f"{item.metadata['Name']} {item.version} needs Python {python}"
        for item in distributions()
        if (python := item.metadata["Requires-Python"])
        and OLDEST_PYTHON not in SpecifierSet(python)
    ]


def main() -> None:
    if unfit := too_new():
        needs = "; ".join(unfit)
        sys.exit(
            f"pins must install on Python {OLDEST_PYTHON}: {needs}; cap them in pyproject.toml"
        )
    pins = {normalized(item.metadata["Name"]): item.version for item in distributions()}
    others = [line for file in OTHERS for line in file.read_text().splitlines()]
    excluded = EXCLUDED | {line.partition("==")[0] for line in others}
    lines = [f"{name}=={pins[name]}" for name in sorted(pins) if name not in excluded]
    print(HEADER + "\n".join(lines))


if __name__ == "__main__":
    main()
