"""Publication of results: `python -m benchmarks.published [CASE ...]` takes them from a run.

`benchmarks/published.json` holds the latest published outcome of each case and its machine; `make
docs` makes the tables of docs/performance.md from it. `make bench` changes only `bench-results`,
which is not part of the repository.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "published.json"
RUN = Path("bench-results") / "results.json"


def add(published: dict[str, Any], run: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Returns the published outcomes, replaced by a run's for the named cases or for all.

    Failed and skipped cases keep their published outcome, if they have one.
    """
    outcomes = {name: run["cases"][name] for name in names or run["cases"]}
    new = {
        name: {"machine": run["machine"], **outcome}
        for name, outcome in outcomes.items()
        if outcome["error"] is None and outcome["findings"]
    }
    return {**published, **new}


def main(names: list[str]) -> None:
    """Publishes the run's outcomes of the named cases, or of all."""
    try:
        run = json.loads(RUN.read_text(encoding="utf-8"))
        published = add(json.loads(FILE.read_text(encoding="utf-8")), run, names)
    except FileNotFoundError:
        sys.exit(f"{RUN}: no such file; run make bench first")
    except KeyError as error:
        sys.exit(f"{RUN}: no case {error}; it has {', '.join(run['cases'])}")
    FILE.write_text(json.dumps(published, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
