"""Command line with shorter intervals and timeouts of the data service.

python impatient.py COMMAND ...
"""

from __future__ import annotations

import sys

# None of these imports TensorFlow: a worker sets its log level before it does.
import infeed.cli
from infeed_server.data_service import run
from infeed_server.data_service.dispatcher import monitor as dispatcher_monitor
from infeed_server.data_service.gateway import local_workers
from infeed_server.data_service.worker import monitor as worker_monitor
from infeed_server.data_service.worker import role, stuck
from infeed_server.processes import signals, supervisor

worker_monitor.CHECK_INTERVAL_SECONDS = 0.2
dispatcher_monitor.CHECK_INTERVAL_SECONDS = 0.2
stuck.STUCK_TIMEOUT_SECONDS = 4.0
role.HEARTBEAT_INTERVAL_SECONDS = 0.5
supervisor.MIN_BACKOFF_SECONDS = 0.1
local_workers.PROBE_INTERVAL_SECONDS = 1.0
local_workers.PROBE_TIMEOUT_SECONDS = 1.0
run._CHECK_INTERVAL_SECONDS = 0.05
signals._EXIT_TIMEOUT_SECONDS = 120.0  # longer: shutdown is slow on a busy machine

if __name__ == "__main__":
    sys.argv[0] = "infeed"
    infeed.cli.main()
