"""Errors of a user's own functions: texts of any length are cut where they are quoted."""

from __future__ import annotations

import tensorflow as tf

from infeed.shared.errors import MAX_TEXT_CHARACTERS
from infeed_server.config.user_errors import user_traceback

SIZE = 1 << 20


def test_long_text_is_cut() -> None:
    text = user_traceback(ValueError("a" * SIZE + "the end"))
    assert len(text) < MAX_TEXT_CHARACTERS + 200
    assert text.endswith("the end")
    assert "ValueError: aaa" in text


def test_long_text_that_tensorflow_quotes_is_cut() -> None:
    quoted = f'Traceback (most recent call last):\n  File "own.py", line 1, in f\n{"a" * SIZE}end'
    text = user_traceback(tf.errors.UnknownError(None, None, quoted))
    assert len(text) <= MAX_TEXT_CHARACTERS + 200
    assert 'File "own.py"' in text
    assert text.endswith("end")
