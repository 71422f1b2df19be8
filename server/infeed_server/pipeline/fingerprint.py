"""The fingerprint of a pipeline: a hash of everything that changes the bits of its batches.

infeed's transforms give the same bits with all TensorFlow kernels, as a test checks. So the
fingerprint includes the selection of kernels only if the pipeline has a user's function, which can
call any kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

ALGORITHM = 5
"""Incremented when infeed itself changes the order, keys or the result of a transform. Fingerprints
begin with it, so a trainer recognizes a cursor of another version."""

_XLA_VARIABLES = ("XLA_FLAGS", "TF_XLA_FLAGS")

_ONEDNN_VARIABLE = re.compile(
    r"(ONEDNN|DNNL)_(MAX_CPU_ISA|CPU_ISA_HINTS|DEFAULT_FPMATH_MODE)|TF_ONEDNN_\w+"
)

_ISA_FLAG = re.compile(r"avx\w*|amx\w*|fma|sve\w*|asimd\w*|bf16|i8mm")
"""Processor flags by which oneDNN chooses kernels."""


def fingerprint(**parts: Any) -> str:
    """Returns 32 lower-case hexadecimal characters; the first two are the algorithm. Parts are JSON
    values, in any order. The seed, the batch size and paths are not included: the first two belong
    to the request, and the path does not change the data."""
    content = {
        "tensorflow": tf.__version__,
        "machine": platform.machine(),
        **parts,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{ALGORITHM:02x}{hashlib.sha256(text.encode()).hexdigest()[:30]}"


def kernel_selection(
    environment: Mapping[str, str] = os.environ, cpuinfo: str | None = None
) -> dict[str, Any]:
    """Returns JSON values that differ between machines where an operation may give different bits.
    The instruction set matters to oneDNN only: TensorFlow's other kernels are compiled for one. It
    is read from `cpuinfo`, by default this machine's."""
    from tensorflow.python.util import _pywrap_util_port  # noqa: PLC0415 - it loads TensorFlow

    selected: dict[str, Any] = {
        name: environment[name] for name in _XLA_VARIABLES if environment.get(name)
    }
    if _pywrap_util_port.IsMklEnabled():
        selected["onednn"] = {
            name: value
            for name, value in sorted(environment.items())
            if _ONEDNN_VARIABLE.fullmatch(name)
        }
        selected["isa"] = _instruction_set(cpuinfo or Path("/proc/cpuinfo").read_text())
    return selected


def _instruction_set(cpuinfo: str) -> list[str]:
    lines = [line for line in cpuinfo.splitlines() if line.startswith(("flags", "Features"))]
    words = lines[0].partition(":")[2].split() if lines else []
    return sorted({word for word in words if _ISA_FLAG.fullmatch(word)})
