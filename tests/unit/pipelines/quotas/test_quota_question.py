"""What the job of quotas may be asked for."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.placement import QUOTA_UNITS_MAX
from pipelines.quotas.model import HEADROOM_PERCENT_MAX, Question, Shares


def test_headroom_is_kept_free_of_brokers_and_added_to_tenants() -> None:
    assert Question(headroom_percent=20).target_permille == 800
    assert Question(headroom_percent=20).growth_permille == 1_200


def test_what_is_at_a_bound_can_be_asked_and_what_is_beyond_is_refused() -> None:
    assert Question(HEADROOM_PERCENT_MAX, QUOTA_UNITS_MAX)
    for headroom, floor, version in (
        (HEADROOM_PERCENT_MAX + 1, 0, 0),
        (-1, 0, 0),
        (0, QUOTA_UNITS_MAX + 1, 0),
        (0, -1, 0),
        (0, 0, -1),
    ):
        with pytest.raises(InvalidRequest):
            Question(headroom, floor, version)


def test_what_is_left_behind_the_floors_is_what_is_divided() -> None:
    shares = Shares(available_units=100, tenants=10, needed_units=170, floor_units=4)

    assert (shares.spare_units, shares.wished_units, shares.is_scarce) == (60, 130, True)
    assert not Shares(100, 10, 100, 4).is_scarce
