"""Selections of kernels in fingerprints, and a measurement of the bits that kernels make."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tensorflow.python.util import _pywrap_util_port

from infeed_server.pipeline.fingerprint import kernel_selection

AVX2 = "processor: 0\nflags\t: fpu sse4_1 fma avx avx2 ht\n"
AVX512 = "processor: 0\nflags\t: fpu sse4_1 fma avx avx2 avx512f avx512_vnni amx_tile ht\n"


@pytest.fixture(params=[True, False])
def onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    enabled: bool = request.param
    monkeypatch.setattr(_pywrap_util_port, "IsMklEnabled", lambda: enabled)
    return enabled


def test_instruction_set_matters_with_onednn_only(onednn: bool) -> None:
    assert (kernel_selection({}, AVX2) != kernel_selection({}, AVX512)) == onednn
    assert kernel_selection({}, AVX2) == kernel_selection({}, AVX2.replace(" ht", " sse4a"))
    limited = kernel_selection({"ONEDNN_MAX_CPU_ISA": "AVX2"}, AVX512)
    assert (limited != kernel_selection({}, AVX512)) == onednn


def test_onednn_itself_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    selections = []
    for enabled in (True, False):
        monkeypatch.setattr(_pywrap_util_port, "IsMklEnabled", lambda on=enabled: on)
        selections.append(kernel_selection({}, AVX2))
    assert selections[0] != selections[1]


@pytest.mark.usefixtures("onednn")
def test_flags_of_xla_matter_and_others_do_not() -> None:
    plain = kernel_selection({}, AVX2)
    for name in ("XLA_FLAGS", "TF_XLA_FLAGS"):
        assert kernel_selection({name: "--xla_cpu_enable_fast_math=true"}, AVX2) != plain
        assert kernel_selection({name: ""}, AVX2) == plain
    assert kernel_selection({"ONEDNN_VERBOSE": "1", "HOME": "/root"}, AVX2) == plain


@pytest.mark.slow
def test_transforms_make_the_same_bits_with_all_kernels() -> None:
    environments = [
        {"TF_ENABLE_ONEDNN_OPTS": "0"},
        *({"ONEDNN_MAX_CPU_ISA": isa} for isa in ("SSE41", "AVX2", "ALL")),
    ]

    def hashes(environment: dict[str, str]) -> list[str]:
        run = subprocess.run(
            [sys.executable, Path(__file__).with_name("kernel_bits.py")],
            env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1", **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        *transforms, other = run.stdout.splitlines()
        print(environment, other)
        return transforms

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(hashes, environments))
    assert len(results[0]) > 20
    for environment, result in zip(environments, results, strict=True):
        assert result == results[0], environment
