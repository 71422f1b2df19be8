"""The options of packs: sizes, and parts for hosts."""

from __future__ import annotations

import pytest

from infeed.shared.errors import ConfigError
from infeed_tools.pack.options import PackOptions, Part, find_part


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MiB", 256 << 20),
        ("1.5GB", 1_500_000_000),
        ("4096", 4096),
        ("2 KiB", 2048),
        ("1M", 10**6),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert PackOptions(shard_size=text).shard_bytes() == size


@pytest.mark.parametrize("text", ["", "0", "-1MB", "1 apple", "MiB"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a size; give one such as 256MiB"):
        PackOptions(shard_size=text).shard_bytes()


def test_parts_are_found() -> None:
    job = {"JOB_COMPLETION_INDEX": "2"}
    slurm = {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "3"}
    assert (
        find_part(None, None, {}) == find_part(None, 1, {}) == find_part(None, None, job) == Part()
    )
    assert find_part("1/4", None, slurm) == Part(1, 4)
    assert find_part(None, 3, job) == Part(2, 3)
    assert find_part(None, None, slurm) == Part(2, 4)
    assert list(Part(2, 4).shards(9)) == [2, 6]


@pytest.mark.parametrize(
    ("part", "parts", "problem"),
    [
        ("4/4", None, "is not I/N"),
        ("x", None, "is not I/N"),
        (None, 2, "COMPLETION_INDEX is '2'"),
    ],
)
def test_parts_that_do_not_exist_are_refused(part: str, parts: int, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        find_part(part, parts, {"JOB_COMPLETION_INDEX": "2"})


def test_a_job_without_an_index_is_refused() -> None:
    with pytest.raises(ConfigError, match="JOB_COMPLETION_INDEX is '', not 0 to 1"):
        find_part(None, 2, {})
