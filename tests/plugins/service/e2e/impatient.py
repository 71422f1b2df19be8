"""Command line with shorter intervals and timeouts of the data service.

python impatient.py COMMAND ...
"""

from __future__ import annotations

import sys

import infeed.cli
from infeed_server.processes import signals, supervisor
from infeed_service.roles import liveness, run, worker

liveness.CHECK_INTERVAL_SECONDS = 0.2
worker.CHECK_INTERVAL_SECONDS = 0.2
worker.HEARTBEAT_INTERVAL_SECONDS = 0.5
supervisor.MIN_BACKOFF_SECONDS = 0.1
run._CHECK_INTERVAL_SECONDS = 0.05
signals._EXIT_TIMEOUT_SECONDS = 120.0  # longer: shutdown is slow on a busy machine

if __name__ == "__main__":
    sys.argv[0] = "infeed"
    infeed.cli.main()
