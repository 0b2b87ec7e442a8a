"""Histories in which a promise about owners, brokers or their capacity is broken once."""

from __future__ import annotations

from typing import Any

from protos.nextgen.v1 import events_pb2 as e
from tests.support.spark.broken.log_breakages import (
    LogBreakage,
    Named,
    last_of,
    replace_payload,
    said,
    settle,
)
from tests.support.spark.histories import (
    AGAIN,
    HOUR_MS,
    MINUTE_MS,
    PAID,
    SENT,
    SHORT,
    SPLIT,
    History,
)

# Owners -------------------------------------------------------------------------------------------


def _two_owners_of_an_epoch(history: History) -> Named:
    *_, before, last = said(history, "topic_assigned", name=PAID)
    last.topic_assigned.epoch -= 1
    return last, before


def _first_lookup_beside_an_owner(history: History) -> Named:
    before = last_of(history, history.home(AGAIN))
    history.assign(AGAIN, "broker-1")
    return last_of(history, history.home(AGAIN)), before


def _epoch_jumps(history: History) -> Named:
    *_, before, last = said(history, "topic_assigned", name=PAID)
    last.topic_assigned.epoch += 3
    return last, before


def _raised_above_nothing(history: History) -> Named:
    before = last_of(history, history.home(PAID))
    history.assign(PAID, "broker-3", reason="epoch_used")
    return last_of(history, history.home(PAID)), before


def _moved_above_a_used_epoch(history: History) -> Named:
    before = last_of(history, history.home(PAID))
    history.assign(PAID, "broker-1", reason="moved", used_epoch=9)
    return last_of(history, history.home(PAID)), before


def _raised_away_from_its_owner(history: History) -> Named:
    before = last_of(history, history.home(PAID))
    history.assign(PAID, "broker-1", reason="epoch_used", used_epoch=9)
    return last_of(history, history.home(PAID)), before


def _nothing_is_moved(history: History) -> Named:
    (before,) = said(history, "topic_unassigned", name=SENT)
    history.assign(SENT, "broker-1", reason="moved")
    return last_of(history, history.home(SENT)), before


def _moved_to_its_owner(history: History) -> Named:
    before = last_of(history, history.home(PAID))
    history.assign(PAID, "broker-3", reason="moved")
    return last_of(history, history.home(PAID)), before


def _lost_twice(history: History) -> Named:
    (before,) = said(history, "topic_unassigned", name=SENT)
    again = history.add(history.home(SENT), topic_unassigned=before.topic_unassigned)
    return again, before


def _taken_on_a_whim(history: History) -> Named:
    history.unassign(PAID, reason="whim")
    return last_of(history, history.home(PAID)), None


def _given_on_a_whim(history: History) -> Named:
    history.assign(SENT, "broker-1", reason="whim")
    return last_of(history, history.home(SENT)), None


def _assigned_after_it_went(history: History) -> Named:
    (deleted,) = said(history, "topic_deleted", name=AGAIN)
    assigned = e.TopicAssigned(
        topic_id=deleted.topic_deleted.topic_id,
        name=AGAIN,
        epoch=1,
        broker_id="broker-2",
        session_id=history.sessions["broker-2"],
        reason="first_lookup",
    )
    return history.add(history.home(AGAIN), topic_assigned=assigned), deleted


def _no_such_partition(history: History) -> Named:
    (created,) = said(history, "topic_created", name=SPLIT)
    history.assign(SPLIT, "broker-2", "p3")
    return last_of(history, history.home(SPLIT)), created


def _partitioned_and_assigned_whole(history: History) -> Named:
    (created,) = said(history, "topic_created", name=SPLIT)
    history.assign(SPLIT, "broker-2")
    return last_of(history, history.home(SPLIT)), created


def _deleted_with_owners(history: History) -> Named:
    (left,) = said(history, "topic_unassigned", name=SHORT)
    replace_payload(left, topic_properties_set=e.TopicPropertiesSet(name=SHORT))
    (created,), (deleted,) = (
        said(history, event_type, name=SHORT) for event_type in ("topic_created", "topic_deleted")
    )
    return deleted, created


def _unknown_session(history: History) -> Named:
    (assigned,) = said(history, "topic_assigned", name=AGAIN)
    assigned.topic_assigned.session_id = "ab" * 12
    return assigned, None


def _session_that_begins_later(history: History) -> Named:
    history.assign(SENT, "broker-1")
    assigned = last_of(history, history.home(SENT))
    history.wait(HOUR_MS)
    history.end_broker("broker-1")
    assigned.topic_assigned.session_id = history.start_broker("broker-1")
    *_, established = said(history, "broker_session_established", broker_id="broker-1")
    return assigned, established


def _session_of_another(history: History) -> Named:
    (assigned,) = said(history, "topic_assigned", name=AGAIN)
    assigned.topic_assigned.broker_id = "broker-1"
    (established,) = said(history, "broker_session_established", broker_id="broker-2")
    return assigned, established


def _session_that_ended(history: History) -> Named:
    (ended,) = said(history, "broker_session_ended", broker_id="broker-1")
    (assigned,) = said(history, "topic_assigned", name=AGAIN)
    assigned.topic_assigned.session_id = ended.broker_session_ended.session_id
    assigned.topic_assigned.broker_id = "broker-1"
    return assigned, ended


def _taken_from_the_living(history: History) -> Named:
    before = last_of(history, history.home(AGAIN))
    history.assign(AGAIN, "broker-1", reason="broker_lost")
    taken = last_of(history, history.home(AGAIN))
    settle(history)
    return taken, before


def _taken_before_the_end(history: History) -> Named:
    """Two brokers have the topic for an hour."""
    history.assign(AGAIN, "broker-1", reason="broker_lost")
    taken = last_of(history, history.home(AGAIN))
    history.wait(HOUR_MS)
    history.end_broker("broker-2")
    return taken, last_of(history, history.home("broker-2"))


# Brokers ------------------------------------------------------------------------------------------


def _session_epoch_jumps(history: History) -> Named:
    (ended,) = said(history, "broker_session_ended", broker_id="broker-1")
    *_, last = said(history, "broker_session_established", broker_id="broker-1")
    last.broker_session_established.epoch = 5
    return last, ended


def _ended_at_another_epoch(history: History) -> Named:
    first, _ = said(history, "broker_session_established", broker_id="broker-1")
    (ended,) = said(history, "broker_session_ended", broker_id="broker-1")
    ended.broker_session_ended.epoch += 1
    return ended, first


def _two_sessions(history: History) -> Named:
    (before,) = said(history, "broker_session_established", broker_id="broker-2")
    history.start_broker("broker-2")
    *_, second = said(history, "broker_session_established", broker_id="broker-2")
    return second, before


def _drain_of_nobody(history: History) -> Named:
    before, _ = said(history, "broker_session_established", broker_id="broker-3")
    (drained,) = said(history, "broker_drain_set", broker_id="broker-3")
    drained.broker_drain_set.session_id = "ab" * 12
    return drained, before


def _grant(history: History, shard_id: int, units: int, broker_id: str = "broker-2") -> Any:
    granted = e.CapacityGranted(
        broker_id=broker_id, session_id=history.sessions[broker_id], units=units
    )
    return history.add(shard_id, capacity_granted=granted)


def _grant_shrinks(history: History) -> Named:
    (established,) = said(history, "broker_session_established", broker_id="broker-2")
    return _grant(history, history.home("broker-2"), 50), established


def _grant_of_more_than_there_is(history: History) -> Named:
    (established,) = said(history, "broker_session_established", broker_id="broker-2")
    return _grant(history, history.home("broker-2"), 200), established


def _drain_skips_a_revision(history: History) -> Named:
    (established,) = said(history, "broker_session_established", broker_id="broker-2")
    history.drain("broker-2", 2)
    return last_of(history, history.home("broker-2")), established


# The cluster manager's log ------------------------------------------------------------------------


def _ended_session_returns(history: History) -> Named:
    first, *_, last = said(history, "broker_recorded", broker_id="broker-1")
    return history.add(0, broker_recorded=first.broker_recorded), last


def _recorded_again_as_live(history: History) -> Named:
    history.end_broker("broker-2")
    live, ended = said(history, "broker_recorded", broker_id="broker-2")
    return history.add(0, broker_recorded=live.broker_recorded), ended


def _granted_of_an_ended_session(history: History) -> Named:
    first, *_, last = said(history, "broker_recorded", broker_id="broker-3")
    granted = _grant(history, 0, 100, "broker-3")
    granted.capacity_granted.session_id = first.broker_recorded.session_id
    return granted, last


def _lease(history: History, units: int, shard_id: int = 1, **fields: int) -> Any:
    leased = e.CapacityLeased(
        broker_id="broker-2",
        session_id=history.sessions["broker-2"],
        shard_id=shard_id,
        units=units,
        **{"version": 1, "expires_at_ms": history.now_ms + MINUTE_MS, **fields},
    )
    return history.add(0, capacity_leased=leased)


def _two_leases(history: History, first: dict[str, int], second: dict[str, int]) -> Named:
    _grant(history, 0, 100)
    before = _lease(history, **first)
    return _lease(history, **second), before


def _lease_skips_a_version(history: History) -> Named:
    return _two_leases(history, {"units": 5}, {"units": 10, "version": 3})


def _other_units_of_one_version(history: History) -> Named:
    return _two_leases(history, {"units": 5}, {"units": 10, "version": 1})


def _leased_to_an_earlier_leader(history: History) -> Named:
    return _two_leases(history, {"units": 5, "term": 5}, {"units": 5, "term": 4})


def _lease_is_cut_short(history: History) -> Named:
    until_ms = history.now_ms + HOUR_MS
    return _two_leases(
        history,
        {"units": 5, "expires_at_ms": until_ms},
        {"units": 5, "expires_at_ms": until_ms - 1},
    )


def _more_leased_than_granted(history: History) -> Named:
    granted = _grant(history, 0, 10)
    _lease(history, 6, shard_id=1)
    return _lease(history, 6, shard_id=2), granted


def _grant_that_nobody_gave(history: History) -> Named:
    (given, *_) = said(history, "capacity_granted", broker_id="broker-2")
    counted = _grant(history, 0, 150)
    settle(history)
    return counted, given


def _window_told_again(history: History) -> Named:
    *_, last = said(history, "lookup_window_recorded", node_id="discovery-1")
    return history.add(0, lookup_window_recorded=last.lookup_window_recorded), last


def _map_skips_a_version(history: History) -> Named:
    # The version before is of a whole map.
    return history.add(0, shard_changed=e.ShardChanged(version=3)), history.logs[0][0]


def _quotas_skip_a_version(history: History) -> Named:
    return history.add(0, quotas_set=e.QuotasSet(version=2)), None


OWNER_BREAKAGES = (
    LogBreakage("overlap", "two owners of one epoch", _two_owners_of_an_epoch),
    LogBreakage("overlap", "a first lookup beside an owner", _first_lookup_beside_an_owner),
    LogBreakage("epoch", "an epoch that jumps", _epoch_jumps),
    LogBreakage("epoch", "an epoch raised above none", _raised_above_nothing),
    LogBreakage("epoch", "a move that jumps", _moved_above_a_used_epoch),
    LogBreakage("raised_elsewhere", "an epoch raised elsewhere", _raised_away_from_its_owner),
    LogBreakage("takeover_of_nothing", "a move from nobody", _nothing_is_moved),
    LogBreakage("given_to_its_owner", "a move to the owner", _moved_to_its_owner),
    LogBreakage("not_owned", "an owner lost twice", _lost_twice),
    LogBreakage("unknown_reason", "taken for no known reason", _taken_on_a_whim),
    LogBreakage("unknown_reason", "given for no known reason", _given_on_a_whim),
    LogBreakage("orphan_assignment", "assigned after it went", _assigned_after_it_went),
    LogBreakage("no_such_partition", "a partition beyond the last", _no_such_partition),
    LogBreakage(
        "no_such_partition", "partitions, and assigned whole", _partitioned_and_assigned_whole
    ),
    LogBreakage("deleted_with_owners", "a topic deleted with owners", _deleted_with_owners),
    LogBreakage("unknown_session", "a session that never was", _unknown_session),
    LogBreakage("unknown_session", "a session that begins later", _session_that_begins_later),
    LogBreakage("session_of_another", "a session of another broker", _session_of_another),
    LogBreakage("ended_session", "a session that ended a day before", _session_that_ended),
    LogBreakage("not_lost", "taken from the living", _taken_from_the_living),
    LogBreakage("not_lost", "taken an hour before the end", _taken_before_the_end),
    LogBreakage("session_epoch", "an epoch of a broker that jumps", _session_epoch_jumps),
    LogBreakage("session_epoch", "an end of another epoch", _ended_at_another_epoch),
    LogBreakage("session_overlap", "two sessions of a broker", _two_sessions),
    LogBreakage("session_not_live", "a drain of nobody", _drain_of_nobody),
    LogBreakage("grant", "a grant that shrinks", _grant_shrinks),
    LogBreakage("grant", "a grant of more than there is", _grant_of_more_than_there_is),
    LogBreakage("drain_revision", "a drain that skips a revision", _drain_skips_a_revision),
    LogBreakage("record_back", "a session of an earlier epoch", _ended_session_returns),
    LogBreakage("record_back", "a session that returns", _recorded_again_as_live),
    LogBreakage("lease_not_live", "a grant of an ended session", _granted_of_an_ended_session),
    LogBreakage("lease_version", "a lease that skips a version", _lease_skips_a_version),
    LogBreakage("lease_version", "other units of one version", _other_units_of_one_version),
    LogBreakage("lease_term", "a lease to an earlier leader", _leased_to_an_earlier_leader),
    LogBreakage("lease_expiry", "a lease cut short", _lease_is_cut_short),
    LogBreakage("lease_overdraft", "more leased than granted", _more_leased_than_granted),
    LogBreakage("grant_not_given", "a grant that nobody gave", _grant_that_nobody_gave),
    LogBreakage("window_not_later", "a window told again", _window_told_again),
    LogBreakage("map_version", "a map that skips a version", _map_skips_a_version),
    LogBreakage("quotas_version", "quotas that skip a version", _quotas_skip_a_version),
)
