"""Histories in which one promise of the log is broken once, and the event that an audit must name.

The files of their exports are whole; what they say is not. Here are places, slots, and what is
created and deleted; owners and brokers are in ``owner_breakages``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nextgen.kernel.governance.policies import Policies
from protos.nextgen.v1 import events_pb2 as e
from tests.support.spark.histories import (
    AGAIN,
    HOUR_MS,
    PAID,
    SENT,
    SHORT,
    History,
    told_history,
)

Named = tuple[Any, Any]
"""The event that breaks a rule, and the one that it contradicts or None."""


@dataclass(frozen=True, slots=True)
class LogBreakage:
    """``spoil`` changes a history, and returns what the one finding of ``rule`` has to name.

    ``also`` are rules that cannot but be broken with it.
    """

    rule: str
    name: str
    spoil: Callable[[History], Named]
    also: frozenset[str] = frozenset()


def history_with_map() -> History:
    """Return a scripted history whose cluster manager's log begins with the map of its slots."""
    history = told_history()
    log = history.logs[0]
    first = e.Event(position=1, term=1, shard_id=0, time_ms=log[0].time_ms, schema_version=1)
    first.shard_map_changed.CopyFrom(
        e.ShardMapChanged(version=1, slot_owners=history.table.to_bytes())
    )
    log.insert(0, first)
    _number(log)
    return history


def said(history: History, event_type: str, **fields: Any) -> list[Any]:
    """Return the events of one type whose payloads have these fields, by shard and position."""
    return [
        event
        for _, log in sorted(history.logs.items())
        for event in log
        if event.WhichOneof("payload") == event_type
        and all(getattr(getattr(event, event_type), key) == fields[key] for key in fields)
    ]


def replace_payload(event: Any, **payload: Any) -> None:
    """Replace the event by another one at the same position."""
    event.ClearField(event.WhichOneof("payload"))
    for name, value in payload.items():
        getattr(event, name).CopyFrom(value)


def remove(history: History, event: Any) -> None:
    """Take an event out of its log; those behind it close up."""
    log = history.logs[event.shard_id]
    log[:] = [each for each in log if each is not event]
    _number(log)


def last_of(history: History, shard_id: int) -> Any:
    """Return the last event of a shard."""
    return history.logs[shard_id][-1]


def _number(log: list[Any]) -> None:
    for position, event in enumerate(log, start=1):
        event.position = position


def settle(history: History) -> None:
    """Let so much time pass that rules about two shards judge what was before."""
    history.wait(HOUR_MS)
    history.report_load("broker-1", 1, {SENT: 10.0})


# Places, commands and slots -----------------------------------------------------------------------


def _term_goes_back(history: History) -> Named:
    log = history.logs[history.home(PAID)]
    log[-1].term = 1
    return log[-1], next(event for event in log if event.term == 2)


def _command_twice(history: History) -> Named:
    (first,) = said(history, "policy_set", name=PAID)
    history.set_policies("topic", PAID, 2, Policies(deduplication=False))
    second = last_of(history, history.home(PAID))
    second.causation_id = first.causation_id
    return second, first


def _command_twice_around_another(history: History) -> Named:
    for version in (2, 3, 4):
        history.set_policies("topic", PAID, version, Policies(deduplication=bool(version % 2)))
    first, _, last = history.logs[history.home(PAID)][-3:]
    last.causation_id = first.causation_id
    return last, first


def _slots_of_another(history: History) -> Named:
    first, last = history.table.ranges_of(2)[0]
    adopted = history.logs[1][0]
    adopted.slots_adopted.ranges.append(e.SlotRange(first=first, last=last))
    return adopted, history.logs[0][0]


def _created_in_a_wrong_shard(history: History) -> Named:
    elsewhere = history.home("stray") % len(history.shard_ids) + 1
    created = e.TenantCreated(tenant_id="ab" * 12, name="stray")
    return history.add(elsewhere, tenant_created=created), history.logs[0][0]


def _assigned_in_another_shard(history: History) -> Named:
    history.unassign(AGAIN)
    *_, created = said(history, "topic_created", name=AGAIN)
    assigned = e.TopicAssigned(
        topic_id=history.ids[AGAIN],
        name=AGAIN,
        epoch=1,
        broker_id="broker-2",
        session_id=history.sessions["broker-2"],
        reason="first_lookup",
    )
    return history.add(history.home(AGAIN) + 1, topic_assigned=assigned), created


def _changed_in_another_shard(history: History) -> Named:
    *_, last = said(history, "policy_cleared", name="acme")
    changed = e.TenantPropertiesSet(name="acme")
    return history.add(history.home("acme") + 1, tenant_properties_set=changed), last


def _broker_in_another_shard(history: History) -> Named:
    history.report_load("broker-2", 1, {SENT: 10.0})
    home = history.home("broker-2")
    (before,) = said(history, "broker_load_reported", broker_id="broker-2")[-1:]
    reported = before.broker_load_reported
    return history.add(home + 1, broker_load_reported=reported), before


# Tenants, namespaces, topics and gates ------------------------------------------------------------


def _created_twice(history: History) -> Named:
    *_, before = said(history, "topic_created", name=AGAIN)
    history.create_topic(AGAIN)
    return last_of(history, history.home(AGAIN)), before


def _deleted_without_being_there(history: History) -> Named:
    (before,) = said(history, "topic_deleted", name=SHORT)
    deleted = e.TopicDeleted(name=SHORT, topic_id="ab" * 12)
    return history.add(history.home(SHORT), topic_deleted=deleted), before


def _policies_of_another_id(history: History) -> Named:
    (created,) = said(history, "topic_created", name=PAID)
    history.clear_policies("topic", PAID, 2)
    cleared = last_of(history, history.home(PAID))
    cleared.policy_cleared.object_id = "ab" * 12
    return cleared, created


def _id_given_twice(history: History) -> Named:
    first, second = said(history, "topic_created", name=AGAIN)
    (assigned,) = said(history, "topic_assigned", name=AGAIN)
    topic_id = first.topic_created.topic_id
    second.topic_created.topic_id = assigned.topic_assigned.topic_id = topic_id
    return second, first


def _deletion_not_started(history: History) -> Named:
    (started,) = said(history, "tenant_deletion_started", name="gone")
    replace_payload(started, tenant_properties_set=e.TenantPropertiesSet(name="gone"))
    (created,), (deleted,) = (
        said(history, event_type, name="gone")
        for event_type in ("tenant_created", "tenant_deleted")
    )
    return deleted, created


def _changed_while_it_is_deleted(history: History) -> Named:
    history.create_tenant("late")
    home = history.home("late")
    created = last_of(history, home)
    history.add(home, tenant_deletion_started=e.TenantDeletionStarted(name="late"))
    changed = e.TenantPropertiesSet(name="late")
    return history.add(home, tenant_properties_set=changed), created


def _policies_skip_a_version(history: History) -> Named:
    (event,) = said(history, "policy_set", name=PAID)
    event.policy_set.version = 2
    return event, None


def _created_behind_a_gate(history: History) -> Named:
    namespace_id = history.create_namespace("acme/fresh")
    name = "persistent://acme/fresh/first"
    created = e.TopicCreated(topic_id="ab" * 12, name=name, namespace_id=namespace_id)
    return history.add(history.home(name), topic_created=created), None


def _gate_closed_over_children(history: History) -> Named:
    opened, *_ = said(history, "parent_gate_opened", parent_name="acme/orders")
    gate = opened.parent_gate_opened
    closed = e.ParentGateClosed(
        parent_kind=gate.parent_kind,
        parent_name=gate.parent_name,
        parent_id=gate.parent_id,
        attempt=1 << 33,
    )
    return history.add(opened.shard_id, parent_gate_closed=closed), opened


def _gate_of_an_earlier_attempt(history: History) -> Named:
    tenant_id = history.create_tenant("gone")
    closed, *_ = said(history, "parent_gate_closed", parent_name="gone")
    opened = e.ParentGateOpened(parent_kind="tenant", parent_name="gone", parent_id=tenant_id)
    return history.add(closed.shard_id, parent_gate_opened=opened), closed


def _namespace_never_created(history: History) -> Named:
    (created,) = said(history, "namespace_created", name="acme/audit")
    created.namespace_created.namespace_id = "ab" * 12
    opened, *_ = said(history, "parent_gate_opened", parent_name="acme/audit")
    return opened, None


def _namespace_goes_before_its_topic(history: History) -> Named:
    name = "persistent://acme/brief/kept"
    history.create_namespace("acme/brief")
    history.create_topic(name)
    created = last_of(history, history.home(name))
    history.delete_namespace("acme/brief")
    deleted = last_of(history, history.home("acme/brief"))
    settle(history)
    return created, deleted


def _gate_stays_open(history: History) -> Named:
    name = "persistent://acme/brief/short"
    history.create_namespace("acme/brief")
    history.create_topic(name)
    history.delete_topic(name)
    history.delete_namespace("acme/brief")
    deleted = last_of(history, history.home("acme/brief"))
    (opened,) = said(history, "parent_gate_opened", parent_name="acme/brief")
    for closed in said(history, "parent_gate_closed", parent_name="acme/brief"):
        if closed.shard_id == opened.shard_id:
            remove(history, closed)
    settle(history)
    return opened, deleted


INVENTORY_BREAKAGES = (
    LogBreakage("term_back", "a term that goes back", _term_goes_back),
    LogBreakage("command_twice", "a command carried out twice", _command_twice),
    LogBreakage("command_twice", "a command around another", _command_twice_around_another),
    LogBreakage("slots_of_another", "slots of another shard", _slots_of_another),
    LogBreakage("wrong_shard", "a tenant in a wrong shard", _created_in_a_wrong_shard),
    LogBreakage("two_homes", "a unit in another shard", _assigned_in_another_shard),
    LogBreakage(
        "two_homes", "a tenant in two shards", _changed_in_another_shard, frozenset({"not_there"})
    ),
    LogBreakage(
        "two_homes",
        "a broker in two shards",
        _broker_in_another_shard,
        frozenset({"session_not_live"}),
    ),
    LogBreakage("created_twice", "a topic created twice", _created_twice),
    LogBreakage("not_there", "a deletion of nothing", _deleted_without_being_there),
    LogBreakage("other_id", "policies of another id", _policies_of_another_id),
    LogBreakage("id_given_twice", "an id given twice", _id_given_twice),
    LogBreakage("deletion_not_started", "a deletion not started", _deletion_not_started),
    LogBreakage("being_deleted", "changed while it is deleted", _changed_while_it_is_deleted),
    LogBreakage("policies_version", "policies that skip a version", _policies_skip_a_version),
    LogBreakage("gate_shut", "a topic behind a gate", _created_behind_a_gate),
    LogBreakage("gate_over_children", "a gate over children", _gate_closed_over_children),
    LogBreakage("attempt_back", "a gate of an earlier attempt", _gate_of_an_earlier_attempt),
    LogBreakage("orphan_parent_unknown", "a namespace never created", _namespace_never_created),
    LogBreakage(
        "orphan_parent_deleted",
        "a topic that outlives its namespace",
        _namespace_goes_before_its_topic,
        frozenset({"gate_over_children"}),
    ),
    LogBreakage("gate_left_open", "a gate that stays open", _gate_stays_open),
)
