"""Tables of labels: a CSV, or JSON lines like Hugging Face's `metadata.jsonl`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from infeed.shared.errors import SourceError
from infeed_server.storage.files import read_bytes

_FILE_COLUMNS = ("file", "file_name")


def read_csv(path: str, delimiters: str = ",") -> list[tuple[int, list[str]]]:
    """Returns number and cells of each row, split by a delimiter. Raises `SourceError`."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8 text; save it as UTF-8", file=path) from error
    delimiter = max(delimiters, key=text.partition("\n")[0].count)
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise SourceError(f"{path}, line {reader.line_num}: {error}", file=path) from error


def read_json_lines(path: str) -> list[tuple[int, list[str]]]:
    """Returns the first object's names, then each line's number and values, like `read_csv`. Raises
    `SourceError`."""
    rows = []
    for line, text in enumerate(read_bytes(path).split(b"\n"), 1):
        try:
            row = json.loads(text) if text.strip() else None
        except ValueError as error:
            raise SourceError(f"{path}, line {line}: not JSON: {error}", file=path) from error
        if isinstance(row, dict):
            rows.append((line, row))
        elif row is not None:
            raise SourceError(f"{path}, line {line}: {row!r} is not a JSON object", file=path)
    names = list(rows[0][1]) if rows else []
    table = [(line, [_cell(row.get(name)) for name in names]) for line, row in rows]
    return [(0, names), *table] if names else []


def _cell(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _label_columns(header: Sequence[str]) -> tuple[int, int] | None:
    """Returns the columns of files and labels; None if the header does not name them."""
    names = [name.lower() for name in header]
    file = next((names.index(name) for name in _FILE_COLUMNS if name in names), None)
    if file is None or ("label" not in names and len(names) != 2):
        return None
    return file, names.index("label") if "label" in names else 1 - file


def read_rows(path: str) -> Iterator[tuple[int, str, str]]:
    """Yields line number, file and label of each row."""
    has_names = path.lower().endswith(".jsonl")
    table = read_json_lines(path) if has_names else read_csv(path)
    if not table:
        raise SourceError(f"{path} is empty; it needs the columns file,label", file=path)
    header = table[0][1]
    if (columns := _label_columns(header)) is not None:
        del table[0]
    elif len(header) == 2 and not has_names:
        columns = 0, 1
    else:
        raise SourceError(
            f"{path}: its columns are {', '.join(header)}; file (or file_name) and label are "
            "required",
            file=path,
        )
    for line, row in table:
        if len(row) != len(header) or not all(row[column] for column in columns):
            raise SourceError(
                f"{path}, line {line}: {','.join(row)!r} is not a row of {len(header)} columns "
                "with a file and a label",
                file=path,
            )
        yield line, row[columns[0]], row[columns[1]]
