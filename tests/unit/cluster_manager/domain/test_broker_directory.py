"""The broker directory: the higher epoch wins, an ended session stays ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.domain.broker_directory import (
    INITIAL,
    Broker,
    BrokerDirectory,
    BrokerRecorded,
    RecordBroker,
    decide,
    evolve,
)
from cluster_manager.projections import tables
from cluster_manager.projections.fold import fold_event
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.cluster import (
    ADDRESS_BYTES_MAX,
    BROKERS_MAX,
    NODE_ID_BYTES_MAX,
    STORED_INTEGER_MAX,
)
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND_MAX

LIVE = Broker("broker-1", "s-1", 1, True, "", "127.0.0.1:7001", "127.0.0.1:7002", 100, "zone-a")

brokers = st.builds(
    Broker,
    broker_id=st.sampled_from(["", "broker-1", "broker-2"]),
    session_id=st.sampled_from(["", "s-1", "s-2"]),
    epoch=st.integers(0, 4),
    is_live=st.booleans(),
    capacity_units=st.integers(0, 50),
    rack=st.sampled_from(["", "rack-1"]),
    draining=st.booleans(),
    revision=st.integers(0, 3),
)
commands = st.builds(RecordBroker, brokers)


def _apply(state: BrokerDirectory, command: RecordBroker) -> BrokerDirectory:
    decision = decide(state, command)
    return fold(evolve, state, decision.events) if isinstance(decision, Accepted) else state


def _given(*brokers: Broker) -> BrokerDirectory:
    return fold(evolve, INITIAL, [BrokerRecorded(broker) for broker in brokers])


def test_a_new_session_is_recorded() -> None:
    assert decide(INITIAL, RecordBroker(LIVE)) == Accepted((BrokerRecorded(LIVE),))


def test_the_end_of_the_session_is_recorded_and_it_is_not_live_any_more() -> None:
    ended = replace(LIVE, is_live=False)

    assert decide(_given(LIVE), RecordBroker(ended)) == Accepted((BrokerRecorded(ended),))
    assert _given(LIVE, ended).live() == ()


def test_a_session_of_a_higher_epoch_replaces_a_live_one() -> None:
    successor = replace(LIVE, session_id="s-2", epoch=2)

    assert decide(_given(LIVE), RecordBroker(successor)) == Accepted((BrokerRecorded(successor),))
    assert _given(LIVE, successor).live() == (successor,)


@pytest.mark.parametrize(
    ("known", "reported"),
    [
        (replace(LIVE, epoch=3, session_id="s-3"), LIVE),
        (replace(LIVE, is_live=False), LIVE),
        (LIVE, replace(LIVE, session_id="s-other")),
    ],
    ids=["lower epoch", "ended session returns", "two sessions of one epoch"],
)
def test_what_is_not_newer_is_refused(known: Broker, reported: Broker) -> None:
    decision = decide(_given(known), RecordBroker(reported))

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.STALE_EPOCH


@pytest.mark.parametrize(
    "broker", [replace(LIVE, broker_id=""), replace(LIVE, session_id=""), replace(LIVE, epoch=0)]
)
def test_a_report_without_a_session_is_refused(broker: Broker) -> None:
    decision = decide(INITIAL, RecordBroker(broker))

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_ALLOWED


def test_the_number_of_brokers_has_a_limit() -> None:
    almost = BrokerDirectory(
        {f"b-{n}": replace(LIVE, broker_id=f"b-{n}") for n in range(BROKERS_MAX - 1)}
    )
    last = replace(LIVE, broker_id="last")
    assert decide(almost, RecordBroker(last)) == Accepted((BrokerRecorded(last),))

    beyond = decide(
        evolve(almost, BrokerRecorded(last)), RecordBroker(replace(LIVE, broker_id="one-more"))
    )

    assert isinstance(beyond, Rejected)
    assert beyond.code is RejectionCode.LIMIT_EXCEEDED


@given(history=st.lists(commands, max_size=15))
def test_epochs_never_go_back_and_ended_sessions_never_return(history: list[RecordBroker]) -> None:
    state, ended = INITIAL, set()
    for command in history:
        before, state = state, _apply(state, command)
        for broker_id, broker in state.brokers.items():
            known = before.brokers.get(broker_id)
            assert known is None or broker.epoch >= known.epoch
            if broker.is_live:
                assert (broker_id, broker.epoch) not in ended
            else:
                ended.add((broker_id, broker.epoch))


@given(history=st.lists(commands, max_size=12), command=commands)
def test_retry(history: list[RecordBroker], command: RecordBroker) -> None:
    state = INITIAL
    for earlier in history:
        state = _apply(state, earlier)

    if isinstance(decide(state, command), Accepted):
        assert decide(_apply(state, command), command) == Accepted(())


@pytest.mark.parametrize(
    ("at_limit", "beyond", "code"),
    [
        (
            {"epoch": STORED_INTEGER_MAX},
            {"epoch": STORED_INTEGER_MAX + 1},
            RejectionCode.NOT_ALLOWED,
        ),
        (
            {"broker_id": "b" * NODE_ID_BYTES_MAX},
            {"broker_id": "b" * (NODE_ID_BYTES_MAX + 1)},
            RejectionCode.LIMIT_EXCEEDED,
        ),
        (
            {"zone": "z" * ADDRESS_BYTES_MAX},
            {"zone": "z" * (ADDRESS_BYTES_MAX + 1)},
            RejectionCode.LIMIT_EXCEEDED,
        ),
    ],
)
def test_what_is_stored_has_a_limit(at_limit: dict, beyond: dict, code: RejectionCode) -> None:
    taken, refused = replace(LIVE, **at_limit), replace(LIVE, **beyond)

    assert decide(INITIAL, RecordBroker(taken)) == Accepted((BrokerRecorded(taken),))
    decision = decide(INITIAL, RecordBroker(refused))
    assert isinstance(decision, Rejected)
    assert decision.code is code


@given(history=st.lists(commands, max_size=12), cut=st.integers(0, 12))
@settings(max_examples=40)
def test_replay_and_snapshot(history: list[RecordBroker], cut: int) -> None:
    state, events, engine = INITIAL, [], sql.create_engine("sqlite://")
    with engine.begin() as connection:
        tables.METADATA.create_all(connection)
        for command in history:
            decision = decide(state, command)
            for event in decision.events if isinstance(decision, Accepted) else ():
                events.append(event)
                fold_event(connection, event)
            state = _apply(state, command)
        restored = tables.load_state(connection).directory
    engine.dispose()

    assert restored == state
    assert fold(evolve, fold(evolve, INITIAL, events[:cut]), events[cut:]) == state


@given(history=st.lists(commands, max_size=12), event=st.builds(BrokerRecorded, brokers))
def test_total(history: list[RecordBroker], event: BrokerRecorded) -> None:
    state = INITIAL
    for command in history:
        assert isinstance(decide(state, command), Accepted | Rejected)
        state = _apply(state, command)

    assert isinstance(evolve(state, event), BrokerDirectory)


def test_within_a_session_the_higher_revision_is_the_later() -> None:
    drained = replace(LIVE, draining=True, drain_units_per_second=50, revision=1)
    undone = replace(LIVE, revision=2)

    assert decide(_given(LIVE), RecordBroker(drained)) == Accepted((BrokerRecorded(drained),))
    stale = decide(_given(LIVE, undone), RecordBroker(drained))
    assert isinstance(stale, Rejected)
    assert stale.code is RejectionCode.STALE_EPOCH
    assert "revision 2, the report at 1" in stale.message


def test_the_end_of_a_session_counts_whatever_its_revision() -> None:
    drained = replace(LIVE, draining=True, revision=1)
    ended = replace(LIVE, is_live=False)

    assert decide(_given(drained), RecordBroker(ended)) == Accepted((BrokerRecorded(ended),))


@pytest.mark.parametrize(
    ("broker", "is_allowed"),
    [
        (replace(LIVE, drain_units_per_second=DRAIN_UNITS_PER_SECOND_MAX), True),
        (replace(LIVE, drain_units_per_second=DRAIN_UNITS_PER_SECOND_MAX + 1), False),
        (replace(LIVE, revision=STORED_INTEGER_MAX), True),
        (replace(LIVE, revision=STORED_INTEGER_MAX + 1), False),
        (replace(LIVE, quarantined_until_ms=STORED_INTEGER_MAX), True),
        (replace(LIVE, quarantined_until_ms=STORED_INTEGER_MAX + 1), False),
        (replace(LIVE, rack="r" * ADDRESS_BYTES_MAX), True),
        (replace(LIVE, rack="r" * (ADDRESS_BYTES_MAX + 1)), False),
    ],
)
def test_what_a_report_says_beside_the_session_has_bounds(broker: Broker, is_allowed: bool) -> None:
    assert isinstance(decide(INITIAL, RecordBroker(broker)), Accepted) is is_allowed
