"""The program `python -m tools.notebooks`: the Markdown twins of the notebooks in examples/."""

from __future__ import annotations

from pathlib import Path

import jupytext

FOLDER = Path(__file__).resolve().parents[1] / "examples/notebooks"


def twins() -> dict[Path, str]:
    """Returns file → text of the twin of each notebook."""
    result = {}
    for program in sorted(FOLDER.glob("*.py")):
        notebook = jupytext.read(program, fmt="py:percent")
        left_out = {"notebook_metadata_filter": "-all", "cell_metadata_filter": "-all"}
        notebook.metadata["jupytext"] = left_out
        result[program.with_suffix(".md")] = jupytext.writes(notebook, fmt="md")
    return result


if __name__ == "__main__":
    for file, text in twins().items():
        file.write_text(text, encoding="utf-8")
        print(f"{file.relative_to(Path.cwd())}: written")
