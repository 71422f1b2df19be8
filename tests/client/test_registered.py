"""How a data set of the data service is asked for."""

from __future__ import annotations

import pytest

from infeed.errors import InvalidRequestError
from infeed.registered import DatasetRequest
from infeed.v1 import feed_service_pb2


def test_a_request_survives_the_wire() -> None:
    asked = DatasetRequest("photos", "ab12", 8, 0, 3, "pad", "snappy", shard_hint=True)
    assert DatasetRequest.from_proto(asked.to_proto()) == asked
    assert DatasetRequest.from_proto(DatasetRequest("photos").to_proto()) == DatasetRequest(
        "photos"
    )


@pytest.mark.parametrize("field", ["remainder", "compression"])
def test_a_choice_that_nobody_knows_is_the_askers_mistake(field: str) -> None:
    message = feed_service_pb2.RegisterDatasetRequest(pipeline="photos", **{field: 77})
    with pytest.raises(InvalidRequestError, match=f"there is no {field} 77"):
        DatasetRequest.from_proto(message)
