"""An evaluation on two devices from a data service in this process; prints the samples read.

python -m tests.plugins.service.trainer.strategy
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from tests.plugins.frameworks.tensorflow.strategy_evaluation import samples_of, two_devices
from tests.plugins.service.trainer.service import SERVICE, FakeServer, address_of, new_worker

import infeed.tensorflow


def main() -> None:
    strategy = two_devices()
    dispatcher = SERVICE.DispatchServer()
    worker = new_worker(address_of(dispatcher))
    server = FakeServer(address_of(dispatcher), {"x": np.ones(50), "label": np.arange(50)})

    def samples(**options: Any) -> float:
        fixed = {"transport": server, "epochs": 1, "batch_size": 20, "remainder": "pad"}
        return samples_of(
            strategy,
            strategy.distribute_datasets_from_function(
                lambda _: infeed.tensorflow.distribute("fake", "fake", **fixed, **options)
            ),
        )

    with strategy.scope():
        try:
            samples(mask=True)
        except infeed.InvalidRequestError as error:
            refusal = str(error)
    found = {"cut": samples(), "kept": samples(mask=True, replicas=2), "refusal": refusal}
    print(json.dumps(found))
    worker._stop()
    dispatcher._stop()


if __name__ == "__main__":
    main()
