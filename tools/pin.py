"""Generator of requirements/dev.txt: prints the exact version of each installed distribution."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

HEADER = """\
# The exact versions used by `make`, written by `make pin`: the dev, server and tensorflow extras,
# and the build requirements. The containers use this file as constraints.
# Requires Python 3.11 or newer.
"""

# These distributions, and the installer.
EXCLUDED = {"infeed", "infeed-jpeg", "pip"}

# Requirements of a single target, excluded too.
OTHERS = [Path(__file__).parent.parent / "requirements" / "frameworks.txt"]


def normalized(name: str) -> str:
    """Returns a distribution's name in the form that package indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    pins = {normalized(item.metadata["Name"]): item.version for item in distributions()}
    others = [line for file in OTHERS for line in file.read_text().splitlines()]
    excluded = EXCLUDED | {line.partition("==")[0] for line in others}
    lines = [f"{name}=={pins[name]}" for name in sorted(pins) if name not in excluded]
    print(HEADER + "\n".join(lines))


if __name__ == "__main__":
    main()
