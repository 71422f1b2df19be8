"""Machine and software versions of a run."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path


def describe() -> dict[str, str]:
    """Returns the hardware and software that figures depend on, each as text."""
    kibibytes = int(_first_group("/proc/meminfo", r"MemTotal: +(\d+)"))
    return {
        "processor": _first_group("/proc/cpuinfo", r"model name\s*: (.+)") or platform.machine(),
        "cores": _cores(),
        "memory": f"{kibibytes * 1024 / 1e9:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "TensorFlow": version("tensorflow"),
        "infeed": version("infeed"),
    }


def load() -> float:
    """Returns the mean number of runnable processes in the last minute."""
    return os.getloadavg()[0]


def _cores() -> str:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count()
    limit = Path("/sys/fs/cgroup/cpu.max")
    quota, period = limit.read_text().split() if limit.exists() else ("max", "1")
    share = "" if quota == "max" else f", limited to the time of {int(quota) / int(period):g}"
    return f"{usable} of {present}{share}"


def _first_group(path: str, pattern: str) -> str:
    match = re.search(pattern, Path(path).read_text())
    return match[1].strip() if match else ""
