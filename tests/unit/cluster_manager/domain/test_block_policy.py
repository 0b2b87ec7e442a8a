"""Block sizes: half of a broker goes out in first blocks, the rest as it is needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.domain.block_policy import units_to_keep, units_to_offer
from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    INITIAL,
    Account,
    CapacityGranted,
    CapacityLeased,
    Lease,
    LeaseCapacity,
    Ledger,
    decide,
    evolve,
)
from nextgen.kernel.events.decider import Accepted, fold

ONE = Broker("broker-1", "s-1", 1, True, capacity_units=80)
TWO = Broker("broker-2", "s-2", 1, True, capacity_units=40)


def _granted(*brokers: Broker) -> Ledger:
    state = INITIAL
    for broker in brokers:
        state = evolve(state, BrokerRecorded(broker))
        grant = CapacityGranted(broker.broker_id, broker.session_id, broker.capacity_units)
        state = evolve(state, grant)
    return state


def _leased(state: Ledger, shard_id: int, units: int, broker: Broker = ONE) -> Ledger:
    lease = CapacityLeased(broker.broker_id, broker.session_id, shard_id, units, 1)
    return evolve(state, lease)


def _offer(
    state: Ledger,
    *brokers: Broker,
    used: dict[str, int] | None = None,
    units_wanted: int = 0,
) -> dict[str, int]:
    return units_to_offer(
        state, brokers=brokers, shard_id=1, shards=4, used=used or {}, units_wanted=units_wanted
    )


def test_a_first_block_is_the_capacity_over_twice_the_shards() -> None:
    assert _offer(_granted(ONE, TWO), ONE, TWO) == {"broker-1": 10, "broker-2": 5}


def test_a_tiny_broker_still_gives_a_unit() -> None:
    tiny = Broker("broker-1", "s-1", 1, True, capacity_units=3)

    assert _offer(_granted(tiny), tiny) == {"broker-1": 1}


def test_a_block_of_which_four_fifths_are_used_stays_as_it_is() -> None:
    state = _leased(_granted(ONE), 1, 10)

    assert _offer(state, ONE, used={"broker-1": 8}) == {"broker-1": 10}


def test_a_block_of_which_more_than_four_fifths_are_used_grows_by_a_quarter() -> None:
    state = _leased(_granted(ONE), 1, 10)

    assert _offer(state, ONE, used={"broker-1": 9}) == {"broker-1": 13}


def test_a_block_grows_by_half_of_what_is_left_at_most() -> None:
    state = _leased(_granted(ONE), 1, 60)

    assert _offer(state, ONE, used={"broker-1": 60}) == {"broker-1": 60 + 10}


def test_shards_that_grow_together_end_near_an_even_share() -> None:
    state = _granted(ONE)
    for _ in range(6):
        for shard_id in (1, 2, 3, 4):
            account = state.accounts["broker-1"]
            lease = account.leases.get(shard_id)
            offers = units_to_offer(
                state,
                brokers=(ONE,),
                shard_id=shard_id,
                shards=4,
                used={"broker-1": lease.units if lease else 0},
                units_wanted=0,
            )
            state = _leased(state, shard_id, offers["broker-1"])

    units = [lease.units for lease in state.accounts["broker-1"].leases.values()]
    assert sum(units) == 80
    even = 80 // 4
    assert all(0.75 * even <= each <= 1.25 * even for each in units)


def test_shards_that_fill_up_alike_use_four_fifths_of_a_broker_before_one_starves() -> None:
    """Units go out one by one, round and round the shards, whichever way their blocks grow."""
    broker = Broker("broker-1", "s-1", 1, True, capacity_units=50_000)
    state = _granted(broker)
    shards = (1, 2, 3, 4)
    for used in range(0, 50_000 // len(shards), 50):
        for shard_id in shards:
            offers = units_to_offer(
                state,
                brokers=(broker,),
                shard_id=shard_id,
                shards=len(shards),
                used={"broker-1": used},
                units_wanted=0,
            )
            state = _leased(state, shard_id, offers["broker-1"], broker)
        leases = state.accounts["broker-1"].leases
        if any(leases[shard_id].units <= used for shard_id in shards):
            break

    assert used * len(shards) >= 0.8 * 50_000


def test_a_wish_lets_the_broker_with_most_left_grow_first_and_no_more_than_needed() -> None:
    state = _leased(_leased(_granted(ONE, TWO), 1, 10), 1, 5, TWO)

    assert _offer(state, ONE, TWO, units_wanted=20) == {"broker-1": 30, "broker-2": 5}
    assert _offer(state, ONE, TWO, units_wanted=50) == {"broker-1": 45, "broker-2": 20}


def test_a_broker_without_units_left_offers_nothing_to_a_newcomer() -> None:
    state = _leased(_granted(ONE), 2, 80)

    assert _offer(state, ONE) == {}
    assert _offer(state, ONE, units_wanted=5) == {}


def test_a_session_that_is_not_live_offers_nothing() -> None:
    assert _offer(INITIAL, ONE) == {}


def test_a_single_shard_that_keeps_asking_gets_the_last_unit() -> None:
    state = _granted(ONE)
    for _ in range(20):
        (units,) = _offer(state, ONE, units_wanted=1_000).values()
        state = _leased(state, 1, units)

    assert state.free_units("broker-1") == 0


@given(
    requests=st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 90), st.integers(0, 90)), max_size=15
    )
)
def test_whatever_is_offered_the_ledger_accepts(requests: list[tuple[int, int, int]]) -> None:
    state = _granted(ONE, TWO)
    for shard_id, used, units_wanted in requests:
        offers = units_to_offer(
            state,
            brokers=(ONE, TWO),
            shard_id=shard_id,
            shards=3,
            used={"broker-1": used},
            units_wanted=units_wanted,
        )
        for broker in (ONE, TWO):
            if broker.broker_id in offers:
                command = LeaseCapacity(
                    broker.broker_id, broker.session_id, shard_id, offers[broker.broker_id], 1
                )
                decision = decide(state, command)
                assert isinstance(decision, Accepted)
                state = fold(evolve, state, decision.events)


# Less capacity than is leased --------------------------------------------------------------------


def _account(capacity_units: int, leases: dict[int, tuple[int, int]]) -> Account:
    """Return an account with leases by shard: units, and those in use."""
    held = {shard: Lease(units, 1, units_used=used) for shard, (units, used) in leases.items()}
    return Account("s-1", True, capacity_units, capacity_units, held)


def test_where_all_leases_fit_nothing_is_asked_back() -> None:
    assert units_to_keep(_account(50, {1: (20, 5), 2: (30, 30)}), {}) == {}


def test_what_is_not_used_is_asked_back_first_from_the_shard_with_most_of_it() -> None:
    account = _account(60, {1: (50, 10), 2: (30, 25), 3: (20, 0)})

    assert units_to_keep(account, {}) == {1: 20, 2: 30, 3: 10}


def test_what_is_used_is_cut_down_to_one_level() -> None:
    account = _account(50, {1: (60, 60), 2: (30, 30), 3: (9, 9)})

    assert units_to_keep(account, {}) == {1: 21, 2: 20, 3: 9}


def test_a_later_report_of_use_counts_more_than_the_ledgers() -> None:
    account = _account(50, {1: (60, 60), 2: (30, 30)})

    assert units_to_keep(account, {1: 10}) == {1: 20, 2: 30}


_leases = st.dictionaries(
    st.integers(1, 5),
    st.integers(0, 60).flatmap(lambda units: st.tuples(st.just(units), st.integers(0, units))),
    min_size=1,
)


@given(capacity_units=st.integers(1, 80), leases=_leases, data=st.data())
def test_what_is_kept_fits_exactly_and_a_shard_that_has_given_is_not_asked_again(
    capacity_units: int, leases: dict[int, tuple[int, int]], data: st.DataObject
) -> None:
    """Shards give one after the other, in any order, and the bounds of the others stay."""
    account = _account(capacity_units, leases)
    kept = units_to_keep(account, {})
    if not account.is_shrinking:
        assert kept == {}
        return
    assert sum(kept.values()) == capacity_units
    assert all(0 <= kept[shard] <= leases[shard][0] for shard in leases)

    for shard in data.draw(st.permutations(sorted(leases))):
        before = units_to_keep(_account(capacity_units, leases), {})
        assert not before or before == kept
        leases[shard] = (kept[shard], min(leases[shard][1], kept[shard]))
    assert units_to_keep(_account(capacity_units, leases), {}) == {}
