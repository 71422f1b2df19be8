"""tf.data service processes: one dispatcher or one worker.

    python -m benchmarks.service dispatcher
    python -m benchmarks.service worker DISPATCHER PORT ADVERTISED

Prints `ready PORT`. The dispatcher sends trainers the worker's advertised address, which differs
from its own address if a proxy is in between.
"""

from __future__ import annotations

import sys

import tensorflow as tf

service = tf.data.experimental.service


def main() -> None:
    role, *rest = sys.argv[1:]
    if role == "dispatcher":
        server = service.DispatchServer(service.DispatcherConfig(port=0))
        print("ready", server.target.rsplit(":", 1)[1], flush=True)
    else:
        dispatcher, port, advertised = rest
        server = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=dispatcher, worker_address=advertised, port=int(port)
            )
        )
        print("ready", port, flush=True)
    server.join()


if __name__ == "__main__":
    main()
