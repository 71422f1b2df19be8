"""Command line of the fuzzers: `python -m tests.stress.fuzz [--case KIND:NUMBER] ...`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from tests.stress.fuzz.calls import CALLS
from tests.stress.fuzz.client_fuzzer import fuzz_client
from tests.stress.fuzz.replies import REPLIES
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.server_fuzzer import fuzz_server


def main(
    cases: Annotated[int, typer.Option(min=0, help="Number of server cases.")] = 100_000,
    client_cases: Annotated[int, typer.Option(min=0, help="Number of client cases.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed from which all cases are drawn.")] = 0,
    case: Annotated[
        str | None, typer.Option(help="Runs only this case, KIND:NUMBER as in a violation.")
    ] = None,
) -> None:
    """Sends malformed inputs to a live server and to a client."""
    reports = []
    kind = (case or "").partition(":")[0]
    if case is not None and kind not in {**CALLS.known, **REPLIES.known}:
        known = ", ".join((*CALLS.known, *REPLIES.known))
        raise typer.BadParameter(f"no kind {case!r}; available: {known}")
    if cases and (case is None or kind in CALLS.known):
        reports.append(Report(seed, "server"))
        fuzz_server(reports[-1], cases, case=case)
    if client_cases and (case is None or kind in REPLIES.known):
        reports.append(Report(seed, "client"))
        fuzz_client(reports[-1], client_cases, case=case)
    for report in reports:
        print(f"\n{report}")
    sys.exit(any(report.problems for report in reports))


if __name__ == "__main__":
    typer.run(main)
