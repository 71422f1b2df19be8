"""tf.data service as its users run it: one dispatcher and one worker, here in one process each.

python -m benchmarks.service dispatcher PORT
python -m benchmarks.service worker PORT DISPATCHER_PORT
"""

from __future__ import annotations

import sys

import tensorflow as tf

service = tf.data.experimental.service


def main() -> None:
    role, port, *rest = sys.argv[1:]
    if role == "dispatcher":
        server = service.DispatchServer(service.DispatcherConfig(port=int(port)))
    else:
        server = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=f"localhost:{rest[0]}",
                worker_address=f"localhost:{port}",
                port=int(port),
            )
        )
    print("ready", flush=True)
    server.join()


if __name__ == "__main__":
    main()
