"""A control group with limits, where this machine lets tests create one."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.waiting import wait_until

_ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def control_group(cpus: float, memory_bytes: int) -> Iterator[list[Path]]:
    """Yields the folders of a control group (v2: one; v1: one for each controller).

    Skips the test where none can be created, for that needs root and a writable file system. Its
    processes must have ended at the end of the block.
    """
    name, quota = f"infeed-test-{uuid.uuid4().hex[:8]}", f"{int(cpus * 100_000)}"
    if (_ROOT / "cgroup.controllers").exists():
        limits = {_ROOT / name: {"cpu.max": f"{quota} 100000", "memory.max": str(memory_bytes)}}
    else:
        limits = {
            _ROOT / "cpu" / name: {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": quota},
            _ROOT / "memory" / name: {"memory.limit_in_bytes": str(memory_bytes)},
        }
    with contextlib.ExitStack() as cleanup:
        try:
            for folder, values in limits.items():
                folder.mkdir()
                cleanup.callback(_remove, folder)
                for file, value in values.items():
                    (folder / file).write_text(value)
        except OSError as error:
            pytest.skip(f"no control group can be created here: {error}")
        yield list(limits)


def enter(groups: list[Path]) -> str:
    """Returns a line of shell that moves the shell into the groups."""
    return "; ".join(f"echo $$ > {group / 'cgroup.procs'}" for group in groups)


def kills(groups: list[Path]) -> int:
    """Returns how many processes the kernel has killed for want of memory."""
    for group in groups:
        for file in ("memory.events", "memory.oom_control"):
            if (group / file).exists():
                lines = dict(map(str.split, (group / file).read_text().splitlines()))
                return int(lines.get("oom_kill", 0))
    return 0


def _remove(folder: Path) -> None:
    def removed() -> bool:
        with contextlib.suppress(OSError):  # the kernel counts a process for a moment longer
            os.rmdir(folder)  # noqa: PTH106 - a control group is removed with its files
        return not folder.exists()

    wait_until(removed, f"{folder} is removed")
