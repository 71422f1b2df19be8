"""tf.data service as its users run it: one dispatcher and one worker, here in one process each.

    python -m benchmarks.service dispatcher
    python -m benchmarks.service worker DISPATCHER PORT ADVERTISED

Prints `ready PORT`. The dispatcher tells trainers the address that the worker advertises, which
need not be where it listens: a proxy may stand in between.
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
