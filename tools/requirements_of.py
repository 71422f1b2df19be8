"""Requirements of this distribution and the named extras, printed one per line.

    python tools/requirements_of.py pyproject.toml [EXTRA ...]

Name the extras that an extra includes, too.

A container image installs these before it copies the code, so that a change to the code does not
reinstall TensorFlow. Requires Python 3.11 or newer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tomllib


def main(path: str, *extras: str) -> None:
    project = tomllib.loads(Path(path).read_text(encoding="utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        listed = project["optional-dependencies"][extra]
        lines += [line for line in listed if not line.startswith(f"{project['name']}[")]
    print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
