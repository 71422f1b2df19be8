"""Tables of the errors: when each is raised, and what to do."""

from __future__ import annotations

from tools.docs.docstrings import first_paragraph, labelled_paragraph
from tools.docs.markdown import DocsError, Table, cell, code

from infeed.shared import errors
from infeed.shared.errors import InfeedError


def tables() -> dict[str, Table]:
    """Returns the tables of all errors, and of those that are built-in exceptions too."""
    classes = [InfeedError, *errors.BY_REASON.values()]
    rows = [
        (
            code(item.__name__),
            code(item.reason),
            code(item.code),
            cell(first_paragraph(item)),
            _remedy(item),
        )
        for item in classes
    ]
    also = [
        (code(item.__name__), code(base.__name__))
        for item in classes
        for base in item.__bases__
        if base is not Exception and not issubclass(base, InfeedError)
    ]
    return {
        "errors": Table(("class", "reason", "gRPC code", "raised when", "remedy"), rows),
        "errors.built-in": Table(("class", "is also"), also),
    }


def _remedy(error: type[InfeedError]) -> str:
    remedy = labelled_paragraph(error, "Remedy")
    if remedy is None:
        raise DocsError(
            f"infeed.shared.errors.{error.__name__}: its docstring has no paragraph 'Remedy:'"
        )
    return cell(remedy)
