"""Foreign text made safe for a terminal, which would obey its control characters."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Returns the text with invisible characters escaped, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def printable_lines(text: str) -> str:
    """Returns text of several lines, such as a message with a traceback."""
    return printable(text, keep="\n\t")
