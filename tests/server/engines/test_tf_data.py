"""Datasets of tf.data: the end of a process, and the samples of batches."""

from __future__ import annotations

import threading

import tensorflow as tf

from infeed_server.engines import tf_data


def test_end_of_a_process_waits_for_the_threads_of_a_thread() -> None:
    go, ended = threading.Event(), threading.Event()

    def read() -> None:
        go.wait()
        tf_data.start_thread("destroys", ended.set)

    tf_data.start_thread("reads", read)
    go.set()
    tf_data._wait_for_threads()
    assert ended.is_set()


def test_samples_without_a_number_leave_their_batches() -> None:
    batches = tf.data.Dataset.from_tensors({"x": tf.zeros([4, 2, 0]), "n": tf.range(4)}).repeat(2)
    samples = list(tf_data.unbatched(batches).as_numpy_iterator())  # `unbatch` ends the process
    assert [sample["n"] for sample in samples] == [0, 1, 2, 3] * 2
    assert all(sample["x"].shape == (2, 0) for sample in samples)
