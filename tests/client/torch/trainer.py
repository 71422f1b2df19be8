"""Rank of a training on two processes: prints what it has seen as JSON.

Arguments: the address of a server, rank, world size, the file of the rendezvous, and optionally a
file of a state to resume from. The state after two steps is written next to the rendezvous file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch.distributed as dist
from tests.client.torch.training import Run, weights
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from infeed.torch import FeedDataset, connect

EPOCHS = 2


def main() -> None:
    address, rank, world_size, rendezvous, *saved = sys.argv[1:]
    # Before the process group: the shard is that of the first batch.
    options = {"epochs": 1, "remainder": "pad", "ids": "id"}
    dataset = FeedDataset(address, "fake", **options)
    length = len(dataset)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=int(world_size)
    )
    run, seen = Run(), []
    run.model = DistributedDataParallel(run.model)
    run.optimizer = type(run.optimizer)(run.model.parameters(), lr=0.01)
    if saved:
        dataset.load_state_dict(json.loads(Path(saved[0]).read_text()))
    for _ in range(EPOCHS):
        for batch in DataLoader(dataset, batch_size=None):
            run.step(batch)
            seen.append(batch["id"].tolist())
            if len(seen) == 2 and rank == "0" and not saved:
                Path(f"{rendezvous}.state").write_text(json.dumps(dataset.state_dict()))
    assert len(dataset) == length == (len(seen) // EPOCHS if not saved else length)
    dataset.close()
    with connect(address, "fake") as feed:
        shard = vars(feed.feed.shard)
    print(json.dumps([seen, weights(run.model), shard]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
