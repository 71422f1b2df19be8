"""The panel that a server shows on a terminal: what it serves, where, and what is not ready."""

from __future__ import annotations

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from infeed.shared.printable import printable
from infeed_server.runtime.server import Server
from infeed_server.version import VERSION

_MAX_PIPELINES = 20
"""Pipelines shown; those that are not ready come first."""

_MAX_LINES = 12
"""Lines besides the table of pipelines; the last are reasons."""

_MAX_REASON_CHARS = 300


def server_panel(server: Server) -> Panel:
    """Returns the panel of a started server."""
    states = server.health.parts
    specs = sorted(server.pipeline_specs, key=lambda spec: (states[spec.name].ready, spec.name))
    pipelines = Table(
        "pipeline", "samples", "batch", "guarantee", "state", box=None, padding=(0, 2)
    )
    for spec in specs[:_MAX_PIPELINES]:
        ready = states[spec.name].ready
        pipelines.add_row(
            Text(printable(spec.name)),
            "unknown" if spec.sample_count is None else f"{spec.sample_count:,}",
            str(spec.batch_size),
            str(spec.guarantee),
            Text("ready", "green") if ready else Text("not ready", "red"),
        )
    lines: list[Text | Table] = [Text(f"trainers  {server.address}")]
    if server.http_address:
        lines.append(Text(f"health    http://{server.http_address}/readyz"))
        lines.append(Text(f"metrics   http://{server.http_address}/metrics"))
    lines += [Text(), pipelines]
    if len(specs) > _MAX_PIPELINES:
        lines.append(Text(f"and {len(specs) - _MAX_PIPELINES} more; `infeed list` has all"))
    for name, state in states.items():
        if not state.ready and len(lines) < _MAX_LINES:
            reason = state.reason.partition("\n")[0][:_MAX_REASON_CHARS]
            lines.append(Text(printable(f"{name} is not ready: {reason}"), "red"))
    return Panel(Group(*lines), title=f"infeed {VERSION}", title_align="left", expand=False)
