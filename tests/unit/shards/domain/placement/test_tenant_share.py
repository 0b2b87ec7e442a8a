"""Shares of capacity: the arithmetic, and that tenants below their shares are never denied them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.policies import NO_RULES
from nextgen.kernel.limits.placement import (
    CAPACITY_RESERVE_PERCENT,
    CAPACITY_SHARE_PERCENT_DEFAULT,
)
from shards.domain.placement.choice import place
from shards.domain.placement.rules import Candidate
from shards.domain.placement.tenant_share import check_share, reserve_units, share_units


@pytest.mark.parametrize(
    ("units_leased", "percent", "share"),
    [
        (1_000, None, 10),
        (1_000, 7, 70),
        (1_000, 0, 0),
        (1_000, 100, 1_000),
        (1, None, 1),
        (0, 5, 0),
    ],
)
def test_a_share_is_the_tenants_part_of_what_is_leased_rounded_up(
    units_leased: int, percent: int | None, share: int
) -> None:
    assert share_units(units_leased, percent) == share


@given(units=st.integers(0, 10**9))
def test_a_reserve_is_part_of_its_lease_and_none_of_a_few_units(units: int) -> None:
    assert 0 <= 100 * reserve_units(units) <= units * CAPACITY_RESERVE_PERCENT
    assert reserve_units(100 // CAPACITY_RESERVE_PERCENT - 1) == 0


def test_a_tenant_below_its_share_is_not_refused_and_one_unit_more_is() -> None:
    assert check_share("acme", units_assigned=9, units_leased=1_000, percent=None) is None

    refusal = check_share("acme", units_assigned=10, units_leased=1_000, percent=None)

    assert refusal is not None
    assert refusal.code is RejectionCode.SHARE_EXCEEDED


def test_capacity_reserve_percent_is_left_and_one_more_unit_is_refused() -> None:
    idle = 1_000 - 1_000 * CAPACITY_RESERVE_PERCENT // 100
    broker = Candidate("b", "s", idle - 1, 1_000)

    last = place([broker], NO_RULES, (0, 0), keeps_reserve=True)
    beyond = place([replace(broker, units_used=idle)], NO_RULES, (0, 0), keeps_reserve=True)

    assert not isinstance(last, Rejected)
    assert isinstance(beyond, Rejected)
    assert beyond.code is RejectionCode.NO_CAPACITY


def test_capacity_share_percent_default_is_given_from_the_reserve_and_one_more_refused() -> None:
    share = 10_000 * CAPACITY_SHARE_PERCENT_DEFAULT // 100

    def refusal(units_assigned: int) -> Rejected | None:
        return check_share("acme", units_assigned=units_assigned, units_leased=10_000, percent=None)

    assert refusal(share - 1) is None
    assert refusal(share) is not None


class Shard:
    """Units by tenant and broker as a topic controller gives them."""

    def __init__(self, leases: list[int], percents: dict[str, int]) -> None:
        self.candidates = [
            Candidate(f"b-{place}", f"s-{place}", 0, units) for place, units in enumerate(leases)
        ]
        self.percents = percents
        self.units: Counter[str] = Counter()

    @property
    def units_leased(self) -> int:
        return sum(each.units_leased for each in self.candidates)

    def assign(self, tenant: str, draw: int) -> RejectionCode | None:
        is_over = check_share(
            tenant,
            units_assigned=self.units[tenant],
            units_leased=self.units_leased,
            percent=self.percents.get(tenant),
        )
        choice = place(
            self.candidates, NO_RULES, (draw, draw // 7), keeps_reserve=is_over is not None
        )
        if isinstance(choice, Rejected):
            return choice.code
        chosen = self.candidates[choice.place]
        self.candidates[choice.place] = replace(chosen, units_used=chosen.units_used + 1)
        self.units[tenant] += 1
        return None


@settings(max_examples=60, deadline=None)
@given(
    leases=st.lists(st.integers(1, 150), min_size=1, max_size=4),
    greedy=st.integers(1, 3),
    newcomers=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_newcomers_whose_shares_fit_the_reserve_get_all_of_them(
    leases: list[int], greedy: int, newcomers: list[int], order: object
) -> None:
    """Greedy tenants take whatever they are given, before the newcomers and between them."""
    draws = order.randrange  # type: ignore[attr-defined]
    percents = {f"new-{number}": percent for number, percent in enumerate(newcomers)}
    shard = Shard(leases, percents)
    reserve = sum(map(reserve_units, leases))
    fitting, shares = [], 0
    for tenant, percent in percents.items():
        share = share_units(shard.units_leased, percent)
        if shares + share + greedy * share_units(shard.units_leased, None) <= reserve:
            fitting.append(tenant)
            shares += share

    for _ in range(shard.units_leased):
        for number in range(greedy):
            shard.assign(f"greedy-{number}", draws(1_000))
    refused = []
    for tenant in fitting:
        for _ in range(share_units(shard.units_leased, percents[tenant])):
            refused.append(shard.assign(tenant, draws(1_000)))
            shard.assign("greedy-0", draws(1_000))

    assert set(refused) <= {None}
    assert all(each.units_used <= each.units_leased for each in shard.candidates)
