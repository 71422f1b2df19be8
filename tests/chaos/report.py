"""The report of a run: JSON for machines, a table for people."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.chaos.kills import Kills
from tests.chaos.storm import Storm


@dataclass(frozen=True)
class Report:
    """Of either part None when it was not run."""

    storm: Storm | None
    kills: Kills | None

    @property
    def exact(self) -> bool:
        """Whether everything that was run was."""
        parts = [part for part in (self.storm, self.kills) if part is not None]
        return bool(parts) and all(part.exact for part in parts)

    def to_json(self) -> dict[str, Any]:
        machine = (
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        )
        return {"exact": self.exact, "machine": machine, **asdict(self)}

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        if self.storm is not None:
            console.print(_storm(self.storm))
            for wait in self.storm.waits:
                console.print(
                    f"rank {wait.rank} waited {wait.seconds:.2f} s for step {wait.step}, of which "
                    f"{wait.without_server:.2f} s without a server, until {wait.ended_at:.1f} s, "
                    "after: " + "; ".join(wait.events or ["nothing"]),
                    style="dim",
                    highlight=False,
                )
        if self.kills is not None:
            console.print(_kills(self.kills))
        console.print("exact" if self.exact else "[bold red]NOT EXACT")


def _storm(storm: Storm) -> Table:
    audit = storm.audit
    kinds = ", ".join(f"{count} {kind}" for kind, count in storm.events.items())
    return _table(
        f"servers disturbed ({storm.pipeline}, seed {storm.seed})",
        {
            "events": f"{sum(storm.events.values())} in {storm.seconds:.0f} s: {kinds}",
            "batches": f"{storm.batches}, of which {storm.equal} as undisturbed",
            "audit": f"{audit.epochs} epochs, {audit.samples} samples: {audit.lost} lost, "
            f"{audit.repeated} repeated",
            "longest wait": f"{storm.longest_wait:.2f} s; with a server there, "
            f"{storm.longest_needless_wait:.2f} s; {storm.waits_over_a_second} over 1 s",
            "hedges": str(storm.hedges),
            "reconnects": str(storm.reconnects),
            "connections reset": str(storm.resets),
            "server starts": f"{storm.starts}; {storm.unclean} ended otherwise than with 0 "
            "after SIGTERM",
        },
    )


def _kills(kills: Kills) -> Table:
    audit = kills.audit
    sizes = " ".join(f"{one.world_size}x{one.batch_size}" for one in kills.generations)
    discarded = sum(one.discarded for one in kills.generations)
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


__all__ = ["Report"]
