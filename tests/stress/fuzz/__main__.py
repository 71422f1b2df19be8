"""Command line of the fuzzers: `python -m tests.stress.fuzz [--case KIND:NUMBER] ...`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from tests.stress.fuzz.case import Kinds
from tests.stress.fuzz.client_fuzzer import fuzz_client
from tests.stress.fuzz.kinds import CALLS, OVERLOADS, RAW_CONNECTIONS, REPLIES
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
    if cases and (case is None or _is_in(case, CALLS, RAW_CONNECTIONS, OVERLOADS)):
        reports.append(Report(seed, "server"))
        fuzz_server(reports[-1], cases, case=case, check_timeouts=True)
    if client_cases and (case is None or _is_in(case, REPLIES)):
        reports.append(Report(seed, "client"))
        fuzz_client(reports[-1], client_cases, case=case)
    if case is not None and not reports:
        known = [
            name for kinds in (CALLS, RAW_CONNECTIONS, OVERLOADS, REPLIES) for name in kinds.known
        ]
        raise typer.BadParameter(f"no kind {case!r}; available: {', '.join(known)}")
    for report in reports:
        print(f"\n{report}")
    sys.exit(any(report.problems for report in reports))


def _is_in(case: str, *registries: Kinds) -> bool:
    return any(case.partition(":")[0] in kinds.known for kinds in registries)


if __name__ == "__main__":
    typer.run(main)
