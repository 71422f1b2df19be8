"""Where nobody is kept out, everybody may do everything."""

from __future__ import annotations

import pytest

from infeed_server.service.access import Anybody


@pytest.mark.parametrize("authorization", [None, "", "Bearer x", "anything"])
def test_anybody_may_do_everything(authorization: str | None) -> None:
    caller = Anybody().admit(authorization)
    assert caller.may("any")
    caller.require("any")
    assert caller.may("")
