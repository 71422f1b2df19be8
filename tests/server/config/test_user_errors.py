"""Errors of a user's own functions: texts of any length are cut where they are quoted."""

from __future__ import annotations

import tracemalloc

import tensorflow as tf

from infeed.shared.errors import MAX_TEXT_CHARACTERS
from infeed_server.config.user_errors import user_traceback

MIB = 1 << 20
SIZE = 20 * MIB


def test_long_text_is_cut_before_it_is_copied() -> None:
    error = ValueError("a" * SIZE + "the end")
    tracemalloc.start()
    try:
        text = user_traceback(error)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(text) < MAX_TEXT_CHARACTERS + 200
    assert text.endswith("the end")
    assert "ValueError: aaa" in text
    assert peak < MIB


def test_long_text_that_tensorflow_quotes_is_cut() -> None:
    quoted = f'Traceback (most recent call last):\n  File "own.py", line 1, in f\n{"a" * SIZE}end'
    text = user_traceback(tf.errors.UnknownError(None, None, quoted))
    assert len(text) <= MAX_TEXT_CHARACTERS + 200
    assert 'File "own.py"' in text
    assert text.endswith("end")
