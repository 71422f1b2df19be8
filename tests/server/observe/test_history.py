"""History: points as columns."""

from __future__ import annotations

from infeed_server.observe.history import MAX_POINTS, History


def test_columns_have_none_where_a_value_is_missing() -> None:
    history = History()
    assert history.to_json() == {"at": [], "pipelines": {}}
    history.add(1.0, {"p": {"rate": 3.0}})
    history.add(2.0, {"p": {"rate": 4.0, "wait": 0.5}, "q": {"rate": 1.0}})
    assert history.to_json() == {
        "at": [1.0, 2.0],
        "pipelines": {
            "p": {"rate": [3.0, 4.0], "wait": [None, 0.5]},
            "q": {"rate": [None, 1.0]},
        },
    }


def test_old_points_are_dropped() -> None:
    history = History()
    for second in range(2 * MAX_POINTS):
        history.add(float(second), {})
    assert len(history.to_json()["at"]) == MAX_POINTS
    assert history.to_json(5)["at"] == [1194.0, 1195.0, 1196.0, 1197.0, 1198.0, 1199.0]


def test_points_after_a_clock_that_was_set_back_are_dropped() -> None:
    history = History()
    for at in (10.0, 3610.0, 3611.0, 11.0):
        history.add(at, {"p": {"rate": at}})
    assert history.to_json() == {"at": [10.0, 11.0], "pipelines": {"p": {"rate": [10.0, 11.0]}}}
