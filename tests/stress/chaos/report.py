"""Report of a run, as JSON and as a table."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.stress.chaos.server_faults import ServerFaults
from tests.stress.chaos.trainer_kills import TrainerKills


@dataclass(frozen=True)
class Report:
    """Results of both parts; None for a part that was not run."""

    server_faults: ServerFaults | None
    kills: TrainerKills | None

    @property
    def exact(self) -> bool:
        """Whether each part that was run is exact."""
        parts = [part for part in (self.server_faults, self.kills) if part is not None]
        return bool(parts) and all(part.exact for part in parts)

    def to_json(self) -> dict[str, Any]:
        machine = (
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        )
        return {"exact": self.exact, "machine": machine, **asdict(self)}

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        if self.server_faults is not None:
            console.print(_server_faults_table(self.server_faults))
        if self.kills is not None:
            console.print(_trainer_kills_table(self.kills))
        console.print("exact" if self.exact else "[bold red]NOT EXACT")


def _server_faults_table(faults: ServerFaults) -> Table:
    audit = faults.audit
    kinds = ", ".join(f"{count} {kind}" for kind, count in faults.events.items())
    return _table(
        f"servers disturbed ({faults.pipeline}, seed {faults.seed})",
        {
            "events": f"{sum(faults.events.values())} in {faults.seconds:.0f} s: {kinds}",
            "batches": f"{faults.batches}, of which {faults.equal} as undisturbed",
            "audit": f"{audit.epochs} epochs, {audit.samples} samples: {audit.lost} lost, "
            f"{audit.repeated} repeated",
            "longest wait": f"{faults.longest_wait:.2f} s; {faults.waits_over_a_second} over 1 s",
            "hedges": str(faults.hedges),
            "reconnects": str(faults.reconnects),
            "connections reset": str(faults.resets),
            "server starts": f"{faults.starts}; {faults.unclean} ended otherwise than with 0 "
            "after SIGTERM",
        },
    )


def _trainer_kills_table(kills: TrainerKills) -> Table:
    audit = kills.audit
    sizes = " ".join(f"{item.world_size}x{item.batch_size}" for item in kills.generations)
    discarded = sum(generation.discarded for generation in kills.generations)
    return _table(
        f"trainers killed ({kills.pipeline}, seed {kills.seed})",
        {
            "kills": f"{kills.kills} in {kills.seconds:.0f} s",
            "ranks x batch": sizes,
            "steps thrown away": str(discarded),
            "audit": f"{audit.epochs} epochs, {audit.samples} samples: {audit.lost} lost, "
            f"{audit.repeated} repeated",
            "as undisturbed": f"{kills.samples_equal} samples",
        },
    )


def _table(title: str, rows: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return table
