"""Requests for a data set of TensorFlow's data service."""

from __future__ import annotations

import pytest

from infeed.shared.errors import InvalidRequestError
from infeed.v1 import feed_service_pb2
from infeed_service.dataset import DatasetRequest


def test_request_round_trip() -> None:
    request = DatasetRequest("photos", "ab12", 8, 0, 3, "pad", "snappy", shard_hint=True)
    assert DatasetRequest.from_proto(request.to_proto()) == request
    assert DatasetRequest.from_proto(DatasetRequest("photos").to_proto()) == DatasetRequest(
        "photos"
    )


@pytest.mark.parametrize("field", ["remainder", "compression"])
def test_unknown_enum_value_is_refused(field: str) -> None:
    message = feed_service_pb2.RegisterDatasetRequest(pipeline="photos", **{field: 77})
    with pytest.raises(InvalidRequestError, match=f"unknown {field} 77"):
        DatasetRequest.from_proto(message)
