"""Records: any fields, and the same bits after decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed_server.cache.records import RecordField, RecordFormat

DTYPES = [np.dtype(name) for name in ("uint8", "bool", "int64", "float16", "float64", "object")]


@st.composite
def samples(draw: Any) -> tuple[list[RecordField], dict[str, Any]]:
    fields, columns, rows = [], {}, draw(st.integers(1, 4))
    for number in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
        values = np.empty((rows, *shape), dtype)
        flat = values.reshape(-1)
        for place in range(flat.size):
            if dtype.kind == "O":
                flat[place] = draw(st.binary(max_size=5))
            else:
                flat[place] = draw(st.integers(0, 1))
        columns[str(number)] = values
        fields.append(RecordField(str(number), dtype, shape))
    return fields, columns


@given(samples())
def test_records_decode_to_the_same_fields(drawn: Any) -> None:
    fields, columns = drawn
    encoder = RecordFormat(fields)
    rows = len(columns[fields[0].name])
    decoded = encoder.decode([encoder.encode(columns, row) for row in range(rows)])
    for one in fields:
        assert decoded[one.name].dtype == one.dtype
        assert decoded[one.name].shape == columns[one.name].shape
        assert decoded[one.name].tolist() == columns[one.name].tolist()


def test_only_fields_that_become_much_smaller_are_compressed() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "photo": rng.integers(0, 256, (100, 1000), np.uint8),
        "mask": np.zeros((100, 1000), np.uint8),
        "label": np.arange(100),
    }
    encoder = RecordFormat([RecordField(name, x.dtype, x.shape[1:]) for name, x in columns.items()])
    sizes = [len(encoder.encode(columns, row)) for row in range(100)]
    assert 1000 + 8 < sizes[-1] < 1100
    assert encoder._trials["photo"].samples == 64


@pytest.mark.parametrize("record", [b"", b"\0", b"\1" * 30, b"\0" * 14])
def test_bytes_that_are_no_record_are_refused(record: bytes) -> None:
    encoder = RecordFormat([RecordField("x", np.dtype(np.int64), ())])
    with pytest.raises(ValueError, match="not a record"):
        encoder.decode([record])
