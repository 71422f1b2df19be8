"""Datasets of tf.data: the end of a process."""

from __future__ import annotations

import threading

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
