"""`examples/maxtext_train.py` beside MaxText's own loader: the same bits from the same records.

Needs MaxText's sources on the path, and what they import; skipped without them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if "jax" not in sys.modules:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
interface = pytest.importorskip("maxtext.input_pipeline.input_pipeline_interface")

import grain  # noqa: E402
import jax  # noqa: E402
import sentencepiece  # noqa: E402
import tensorflow as tf  # noqa: E402
from array_record.python.array_record_module import ArrayRecordWriter  # noqa: E402
from maxtext.common import checkpointing  # noqa: E402
from maxtext.configs import pyconfig  # noqa: E402
from orbax import checkpoint as ocp  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
LENGTH, BATCH, SEQUENCES = 16, 8, 48

PIPELINES = f"""
pipelines:
  tokens:
    source:
      arrayrecord: tokens.array_record
      features: {{tokens: {{type: int64, max_length: {LENGTH}}}}}
    batch: {{size: {BATCH}}}
  shuffled:
    source:
      arrayrecord: tokens.array_record
      features: {{tokens: {{type: int64, max_length: {LENGTH}}}}}
    shuffle: {{seed: 17}}
    batch: {{size: {BATCH}}}
"""


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES)
    import maxtext_train

    return maxtext_train


@pytest.fixture
def address(serve: Any, tmp_path: Path) -> str:
    """Serves sequences of 3 to 16 tokens."""
    random = np.random.default_rng(0)
    writer = ArrayRecordWriter(str(tmp_path / "tokens.array_record"), "group_size:1")
    for _ in range(SEQUENCES):
        values = random.integers(1, 30, random.integers(3, LENGTH + 1)).tolist()
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        features = tf.train.Features(feature={"tokens": feature})
        writer.write(tf.train.Example(features=features).SerializeToString())
    writer.close()
    return str(serve(PIPELINES).address)


@pytest.fixture
def config(address: str, tmp_path: Path) -> Any:
    """Returns MaxText's own configuration for these records, which `address` has written."""
    del address
    base = Path(pyconfig.__file__).with_name("base.yml")
    words = iter([" ".join("abcdefghijklmnopqrstuvwxyz")] * 50)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=words,
        model_prefix=str(tmp_path / "words"),
        vocab_size=32,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=3,
    )
    options = {
        "run_name": "test",
        "base_output_directory": str(tmp_path / "output"),
        "dataset_type": "grain",
        "grain_train_files": str(tmp_path / "tokens.array_record"),
        "grain_worker_count": 0,
        "train_data_columns": ["tokens"],
        "tokenize_train_data": False,
        "enable_data_shuffling": False,
        "packing": False,
        "num_epoch": 1,
        "max_target_length": LENGTH,
        "per_device_batch_size": BATCH / jax.device_count(),
        "tokenizer_type": "sentencepiece",
        "tokenizer_path": str(tmp_path / "words.model"),
        "enable_checkpointing": False,
        "skip_jax_distributed_system": True,
    }
    return pyconfig.initialize(["train", str(base)], **options)


@pytest.fixture
def mesh() -> jax.sharding.Mesh:
    return jax.sharding.Mesh(np.array(jax.devices()), ("data",))


@pytest.fixture
def new_iterator(
    example: Any, address: str, config: Any, mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """`new_iterator(pipeline)` returns what MaxText's `create_data_iterator` makes over a feed."""

    def create(pipeline: str) -> Any:
        made = partial(example.new_iterator, address, pipeline)
        monkeypatch.setattr(interface, "make_grain_train_iterator", made)
        return interface.create_data_iterator(config, mesh)[0]

    return create


def arrays(batches: Iterator[Any]) -> list[dict[str, np.ndarray]]:
    return [{name: np.asarray(x) for name, x in batch.items()} for batch in batches]


def drain(iterator: Any) -> Iterator[Any]:
    """Yields the rest of MaxText's iterator, which `iter` would reset."""
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            return


def assert_equal(batches: list[Any], expected: list[Any]) -> None:
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        assert batch.keys() == other.keys()
        for name, values in batch.items():
            assert values.dtype == other[name].dtype, name
            np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_batches_have_the_bits_of_maxtexts_own_loader(
    new_iterator: Any, config: Any, mesh: Any
) -> None:
    own = arrays(drain(interface.create_data_iterator(config, mesh)[0]))
    assert len(own) == SEQUENCES // BATCH
    iterator = new_iterator("tokens")
    first = next(iterator)
    assert first["inputs"].sharding.num_devices == jax.device_count()
    assert_equal([*arrays(iter([first])), *arrays(drain(iterator))], own)


def test_a_shuffled_epoch_has_each_sequence_once(new_iterator: Any, config: Any, mesh: Any) -> None:
    own = np.concatenate(
        [x["inputs"] for x in arrays(interface.create_data_iterator(config, mesh)[0])]
    )
    read = np.concatenate([x["inputs"] for x in arrays(new_iterator("shuffled"))])
    assert read.tolist() != own.tolist()
    assert sorted(read.tolist()) == sorted(own.tolist())


def test_maxtexts_checkpoint_continues_with_the_next_batch(
    new_iterator: Any, config: Any, tmp_path: Path
) -> None:
    whole = arrays(new_iterator("shuffled"))
    iterator = new_iterator("shuffled")
    for _ in range(2):
        next(iterator)
    handlers = {"iter": checkpointing.grain_utility.GrainCheckpointHandler()}
    handlers["items"] = ocp.PyTreeCheckpointHandler()
    state = {"step": np.array(2)}
    with ocp.CheckpointManager(tmp_path / "run", item_handlers=handlers) as manager:
        checkpointing.save_checkpoint(manager, 2, state, config, iterator)
        manager.wait_until_finished()
        (file,) = (tmp_path / "run" / "2" / "iter").glob("process_*.json")
        assert file.name == "process_0-of-1.json"
        other = new_iterator("shuffled")
        checkpointing.grain_utility.restore_grain_iterator(
            manager, 2, other, ocp.args.PyTreeRestore(state), -1
        )
    assert isinstance(other.local_iterator, grain.DatasetIterator)
    assert_equal(arrays(drain(other)), whole[2:])


def test_old_lines_of_the_page_are_maxtexts() -> None:
    page = (EXAMPLES.parent / "docs" / "maxtext.md").read_text(encoding="utf-8")
    old = re.findall(
        r"^-(?!--)(.*)$", page.partition("```diff")[2].partition("```")[0], re.MULTILINE
    )
    module = Path(interface.__file__).with_name("grain_data_processing.py")
    source = iter(module.read_text(encoding="utf-8").splitlines())
    assert old
    for line in old:
        assert line in source, line
