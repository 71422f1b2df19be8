"""Small data of each kind that `infeed init` knows."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import numpy as np
from PIL import Image
from tests.harness.tfrecords import example, write_records


def jpeg(number: int, size: tuple[int, int] = (40, 30), *, grey: bool = False) -> bytes:
    """Returns a small JPEG of random pixels; `size` is width and height."""
    rng = np.random.default_rng(number)
    shape = (size[1], size[0]) if grey else (size[1], size[0], 3)
    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(out, "JPEG")
    return out.getvalue()


def write_datasets(root: Path) -> None:
    """Writes a folder for each kind of data."""
    for number in range(12):
        size = (40 + number, 30 + number)
        files = {
            f"folders/{('cat', 'dog')[number % 2]}/{number}.jpg": jpeg(number, size),
            f"flat/{number}.jpg": jpeg(number, (32, 32), grey=True),
            f"csv/images/{number}.jpg": jpeg(number, size),
            f"other-csv/pictures/{number}.jpg": jpeg(number, size),
            f"parts/{('train', 'val')[number % 2]}/{'ab'[number // 6]}/{number}.jpg": jpeg(number),
        }
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
    rows = [f"{number}.jpg,{number % 3}" for number in range(12)]
    (root / "csv" / "labels.csv").write_text("\n".join(["file,label", *rows]) + "\n")
    rows = [f"{number};class {number % 3};/old/pictures/{number}.jpg" for number in range(10)]
    lines = ["id;class;path", *rows, "99;class 1;/old/pictures/99.jpg"]
    (root / "other-csv" / "table.csv").write_text("\n".join(lines) + "\n")
    (root / "records").mkdir()
    for part in ("train", "val"):
        for shard in range(2):
            records = [
                example(
                    {
                        "image/encoded": [jpeg(number)],
                        "label": [number % 4],
                        "name": [b"cat" if number % 2 else b"dog"],
                        "box": [0.0, 0.5, 1.0, number / 10],
                        "tokens": list(range(number % 3 + 1)),
                    }
                )
                for number in range(8)
            ]
            write_records(root / "records" / f"{part}-{shard:05}-of-00002", records)
    (root / "arrays").mkdir()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 8, 8, 3), np.uint8)
    np.savez(root / "arrays" / "digits.npz", image=images, label=np.arange(20) % 10)
    (root / "npy").mkdir()
    np.save(root / "npy" / "x.npy", rng.normal(size=(20, 3)))
    np.save(root / "npy" / "y.npy", np.arange(20) % 2)
    if importlib.util.find_spec("pyarrow") is not None:
        _write_parquet(root / "rows")
    np.save(root / "single.npy", rng.normal(size=(20, 3)).astype(np.float32))


def _write_parquet(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    folder.mkdir()
    images = [
        {"bytes": jpeg(number, (40 + number, 34)), "path": f"{number}.jpg"} for number in range(64)
    ]
    table = pyarrow.table({"image": images, "label": [number % 3 for number in range(64)]})
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=5)
