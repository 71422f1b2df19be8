"""The command line with shorter intervals between looks, and more time to end on a busy machine.

python impatient.py COMMAND ...
"""

from __future__ import annotations

import sys

# None of these imports TensorFlow: a worker chooses before that what TensorFlow logs.
import infeed.cli
from infeed_server.cluster import journal, lost, wedged, worker
from infeed_server.runtime import fleet, local_workers, roles, signals

journal.LOOK_SECONDS = 0.2
lost.LOOK_SECONDS = 0.2
wedged.WEDGED_SECONDS = 4.0
worker.HEARTBEAT_SECONDS = 0.5
fleet.FIRST_PAUSE = 0.1
local_workers.ASK_SECONDS = 1.0
roles._LOOK_SECONDS = 0.05
signals._END_SECONDS = 120.0

if __name__ == "__main__":
    sys.argv[0] = "infeed"
    infeed.cli.main()
