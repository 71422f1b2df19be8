"""Arrow Flight server and client that send a batch as record batches of 1 MiB.

    python -m benchmarks.flight DATASET ADDRESS

Prints `ready PORT`. Pieces of 1 MiB, copied into the batch's memory on arrival, were up to twice
as fast as one record batch of 38.5 MB, and as fast as one of 9.6 MB.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.flight as fl
from benchmarks.arrays import BATCHES

_PIECE_BYTES = 1 << 20


class Server(fl.FlightServerBase):
    """Serves one batch repeatedly."""

    def __init__(self, batch: npt.NDArray[np.generic], address: str) -> None:
        super().__init__(address)
        flat, step = batch.reshape(-1), _PIECE_BYTES // batch.itemsize
        self._pieces = [
            pa.record_batch({"image": pa.array(flat[start : start + step])})
            for start in range(0, flat.size, step)
        ]

    def do_get(self, _: object, __: object) -> fl.RecordBatchStream:
        schema = self._pieces[0].schema
        endless = itertools.cycle(self._pieces)
        return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(schema, endless))


def batches(address: str, dataset: str) -> Iterator[npt.NDArray[np.generic]]:
    """Yields a server's batches in one reused buffer: a batch is valid until the next one."""
    batch = np.empty_like(BATCHES[dataset]())
    flat, filled = batch.reshape(-1), 0
    for chunk in fl.connect(address).do_get(fl.Ticket(b"")):
        piece = chunk.data.column(0).to_numpy(zero_copy_only=True)
        flat[filled : filled + piece.size] = piece
        filled += piece.size
        if filled == flat.size:
            filled = 0
            yield batch


def main() -> None:
    server = Server(BATCHES[sys.argv[1]](), sys.argv[2])
    print("ready", server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
