"""`python -m tests.stress.fuzz [--cases N] [--client-cases N] [--seed N] [--case KIND:NUMBER]`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from tests.stress.fuzz.client_fuzzer import fuzz_client
from tests.stress.fuzz.kinds import CALLS, OVERLOADS, RAW_CONNECTIONS, REPLIES
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.server_fuzzer import fuzz_server


def main(
    cases: Annotated[int, typer.Option(min=0, help="Against the server.")] = 100_000,
    client_cases: Annotated[int, typer.Option(min=0, help="Against the client.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Draws all cases.")] = 0,
    case: Annotated[str | None, typer.Option(help="Only this, as a violation tells it.")] = None,
) -> None:
    """Send a live server what no trainer would, and a client what no server would."""
    reports = []
    if cases and (case is None or _is_of(case, CALLS, RAW_CONNECTIONS, OVERLOADS)):
        reports.append(Report(seed, "server"))
        fuzz_server(reports[-1], cases, case=case, patient=True)
    if client_cases and (case is None or _is_of(case, REPLIES)):
        reports.append(Report(seed, "client"))
        fuzz_client(reports[-1], client_cases, case=case)
    if case is not None and not reports:
        known = [
            name for kinds in (CALLS, RAW_CONNECTIONS, OVERLOADS, REPLIES) for name in kinds.known
        ]
        raise typer.BadParameter(f"no kind {case!r}; there is {', '.join(known)}")
    for report in reports:
        print(f"\n{report}")
    sys.exit(any(report.problems for report in reports))


def _is_of(case: str, *many: object) -> bool:
    return any(case.partition(":")[0] in kinds.known for kinds in many)


if __name__ == "__main__":
    typer.run(main)
