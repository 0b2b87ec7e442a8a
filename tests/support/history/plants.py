"""Faults planted into a history that is green: each breaks one promise and must be found.

A plant takes any green history, made up or recorded, and raises ``NoPlace`` if there is nothing in
it that it could spoil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar, cast

from nextgen.audit.verdict import FindingKind
from nextgen.harness.history.log_fold import (
    ADOPTED,
    RENAMED,
    ObjectState,
    index_log,
    slot_of_event,
)
from nextgen.harness.history.model import (
    FinalItem,
    History,
    LogEvent,
    Observation,
    Operation,
    OperationKind,
    Publish,
    Received,
    SnapshotItem,
    WatchOpened,
    WatchProgress,
    WatchRecord,
    failed,
    refused,
)
from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX

T = TypeVar("T")


class NoPlace(Exception):
    """The history has nothing that this plant could spoil."""


@dataclass(frozen=True, slots=True)
class Plant:
    """``spoil`` breaks a promise; the verdict has to have a finding of ``kind`` by ``check``."""

    name: str
    kind: FindingKind
    check: str
    spoil: Callable[[History], History]


# Reads and writes ----------------------------------------------------------------------------


def stale_read(history: History) -> History:
    """A get, after a change was acknowledged, still has what was there before."""
    write, before = _overwritten(history)
    return _with_operation(history, _read(write, before))


def resurrected_topic(history: History) -> History:
    """A get, after a deletion was acknowledged, has the topic again."""
    for write, before in _changes(history, OperationKind.DELETE):
        return _with_operation(history, _read(write, before))
    raise NoPlace


def repeated_version(history: History) -> History:
    """A change is answered with the version that the change before it had."""
    for write, before in _changes(history, OperationKind.SET_PROPERTIES):
        # Policies that were set at the same time might have come behind it: then it is right.
        if before.event.type not in _EVENTS_OF[OperationKind.SET_POLICIES]:
            value = {**write.value, "version": before.version}
            return _instead(history, write, replace(write, value=value))
    raise NoPlace


def stale_policies(history: History) -> History:
    """Policies are read, after a change was acknowledged, as they were before."""
    for write, before in _changes(history, OperationKind.SET_POLICIES):
        if before.policies and before.policies != write.argument["policies"]:
            assert write.returned_ns is not None
            value = {"policies": before.policies, "policies_version": before.policies_version}
            read = replace(_read(write, before), kind=OperationKind.GET_POLICIES, value=value)
            return _with_operation(history, read)
    raise NoPlace


def two_winners(history: History) -> History:
    """Two clients change policies on condition of the same version, and both are acknowledged."""
    for write, before in _changes(history, OperationKind.SET_POLICIES):
        if before.policies_version and write.argument["expected_version"]:
            assert write.returned_ns is not None
            again = replace(
                write,
                client="planted",
                invoked_ns=write.returned_ns + 1,
                returned_ns=write.returned_ns + 2,
                command_id="88" * 16,
            )
            return _with_operation(history, again)
    raise NoPlace


def lost_policies(history: History) -> History:
    """A change of policies was acknowledged; the log does not have it."""
    write, _ = _first(_changes(history, OperationKind.SET_POLICIES))
    argument = {**write.argument, "policies": "planted"}
    planted = replace(write, client="planted", argument=argument, command_id="99" * 16)
    return _with_operation(history, planted)


def phantom_policies(history: History) -> History:
    """A read returns policies that no client set."""
    write, before = _first(_changes(history, OperationKind.SET_POLICIES))
    value = {"policies": "planted", "policies_version": before.policies_version + 1}
    read = replace(_read(write, before), kind=OperationKind.GET_POLICIES, value=value)
    return _with_operation(history, read)


def policies_of_another_version(history: History) -> History:
    """The log has policies with a version that leaves one out."""
    event = _event(history, lambda event: event.type == "policy_set")
    wrong = replace(event, policies_version=event.policies_version + 1)
    return replace(history, log=[wrong if each is event else each for each in history.log])


def lost_without_an_end(history: History) -> History:
    """A unit was taken as lost from a broker whose session continues."""
    taken = _event(history, lambda event: event.reason in ("broker_lost", "moved"))

    def spoiled(event: LogEvent) -> LogEvent:
        if event is taken:
            return replace(event, reason="broker_lost")
        is_end = event.type == "broker_session_ended"
        return replace(event, session_id="planted") if is_end else event

    return replace(history, log=[spoiled(event) for event in history.log])


def left_for_no_reason(history: History) -> History:
    """A unit lost its owner for a reason that there is not."""
    event = _event(history, lambda event: event.type == "topic_unassigned")
    wrong = replace(event, reason="bored")
    return replace(history, log=[wrong if each is event else each for each in history.log])


def lost_create(history: History) -> History:
    """A create was acknowledged; neither the log nor any read has it."""
    like = _acked(history, OperationKind.CREATE)
    planted = replace(
        like,
        client="planted",
        key=f"{like.key}-planted",
        value={"id": "planted"},
        command_id="77" * 16,
    )
    return _with_operation(history, planted)


def lost_change(history: History) -> History:
    """A change was acknowledged and its event is another one's."""
    write, _ = _overwritten(history)
    wanted = {"planted": "by nobody else"}
    planted = replace(write, argument={"properties": wanted}, command_id="77" * 16)
    return _instead(history, write, planted)


def lost_at_the_end(history: History) -> History:
    """What the log has is not listed after the load."""
    prefixes = tuple(listing.prefix for listing in history.final_listings)
    for item in history.final_items:
        if item.key.startswith(prefixes):
            left = tuple(each for each in history.final_items if each is not item)
            return replace(history, final_items=left)
    raise NoPlace


def phantom_create(history: History) -> History:
    """The log and a listing have a topic that no client created."""
    like = _acked(history, OperationKind.CREATE)
    key = f"{like.key}-planted"
    shard = max(event.shard for event in history.log)
    last = max((e for e in history.log if e.shard == shard), key=lambda e: e.position)
    event = LogEvent(
        shard, last.position + 1, last.term, "topic_created", key, "planted", causation_id="77" * 16
    )
    listed = FinalItem(key, "planted", 1, {})
    return replace(history, log=(*history.log, event), final_items=(*history.final_items, listed))


def phantom_of_a_failure(history: History) -> History:
    """A change that was refused took place."""
    write, _ = _overwritten(history)
    denied = replace(write, outcome=failed("UNAVAILABLE"), value={}, position=0, shard=0)
    return _instead(history, write, denied)


def phantom_read(history: History) -> History:
    """A get returns properties that no client set."""
    write, before = _overwritten(history)
    value = {"id": before.id, "version": before.version, "properties": {"planted": "x"}}
    return _with_operation(history, replace(_read(write, before), value=value))


def untrue_refusal(history: History) -> History:
    """A create is refused because the topic exists, after its deletion and before any create."""
    like = _acked(history, OperationKind.CREATE)
    planted = replace(
        like,
        client="planted",
        key=f"{like.key}-planted",
        outcome=refused("ALREADY_EXISTS"),
        value={},
        shard=0,
        position=0,
    )
    return _with_operation(history, planted)


def carried_out_twice(history: History) -> History:
    """One command is in the log twice."""
    write, _ = _overwritten(history)
    command = write.command_id or "77" * 16
    log = list(history.log)
    events = [e for e in log if e.key == write.key and e.type == "topic_properties_set"]
    version = write.value["version"]
    states = index_log(log).keys[write.key].states
    at = next(
        each.event.name
        for each in states
        if each.event.type == "topic_properties_set" and _version_at(each) == version
    )
    own = next(e for e in events if e.name == at)
    log = [replace(e, causation_id=command) if e is own else e for e in log]
    shard_log = [e for e in log if e.shard == own.shard]
    again = replace(own, position=shard_log[-1].position + 1, causation_id=command)
    spoilt = _instead(history, write, replace(write, command_id=command))
    return replace(spoilt, log=(*log, replace(again, term=shard_log[-1].term)))


def parent_denied(history: History) -> History:
    """A create is refused for want of a namespace that was there all the time."""
    like = _acked(history, OperationKind.CREATE)
    end_ns = history.run.ended_ns
    planted = replace(
        like,
        client="planted",
        key=f"{like.key}-planted",
        invoked_ns=end_ns - 2,
        returned_ns=end_ns - 1,
        outcome=refused("PARENT_NOT_FOUND"),
        value={},
    )
    return _with_operation(history, planted)


# Renames -------------------------------------------------------------------------------------


def lost_rename(history: History) -> History:
    """A rename was acknowledged, and no event has it."""
    like = _rename(history)
    argument = {"new_name": f"{like.key}-planted"}
    return _with_operation(
        history, replace(like, client="planted", argument=argument, command_id="77" * 16)
    )


def phantom_rename(history: History) -> History:
    """A topic was renamed, and nobody asked for that."""
    asked = _rename(history)
    kept = tuple(op for op in history.operations if op is not asked)
    return replace(history, operations=kept)


def former_name_forgotten(history: History) -> History:
    """A get by the former name, after the rename was acknowledged, finds nothing."""
    renamed = _rename(history)
    assert renamed.returned_ns is not None
    return _with_operation(
        history,
        Operation(
            *("planted", 1, OperationKind.GET, renamed.key, renamed.returned_ns + 1),
            returned_ns=renamed.returned_ns + 2,
            outcome="ok",
        ),
    )


def found_before_the_rename(history: History) -> History:
    """A get by the new name finds the topic before the rename began."""
    renamed = _rename(history)
    read = {"id": renamed.value["id"], "version": renamed.value["version"], "properties": {}}
    return _with_operation(
        history,
        Operation(
            *("planted", 1, OperationKind.GET, str(renamed.argument["new_name"])),
            invoked_ns=renamed.invoked_ns - 2,
            returned_ns=renamed.invoked_ns - 1,
            outcome="ok",
            value=read,
        ),
    )


def lookup_of_a_former_name(history: History) -> History:
    """A lookup by the former name is refused: there is no such topic."""
    renamed = _rename(history)
    assert renamed.returned_ns is not None
    return _with_operation(
        history,
        Operation(
            *("planted", 1, OperationKind.LOOKUP, renamed.key, renamed.returned_ns + 1),
            returned_ns=renamed.returned_ns + 2,
            outcome=refused("NOT_FOUND"),
        ),
    )


def half_of_a_rename(history: History) -> History:
    """A watch is sent that a name went, and not that the other one came."""
    records = list(history.watch_records)
    for place, (first, second) in enumerate(pairwise(records), start=1):
        if (
            isinstance(first, Observation)
            and isinstance(second, Observation)
            and first.position == second.position
        ):
            del records[place]
            return replace(history, watch_records=tuple(records))
    raise NoPlace


def renamed_with_owners(history: History) -> History:
    """A topic was renamed while a broker had it."""
    ended = _event(history, lambda event: event.reason == "renamed")
    return _with_event(history, ended, replace(ended, type="parent_gate_opened", key="", id=""))


def renamed_to_a_name_in_use(history: History) -> History:
    """A topic got the name of one that was there."""
    gone = {event.id for event in history.log if event.type == "topic_deleted"}
    # Of slots that never moved: the events of others are not in the order of a shard's log.
    log = [each for events in index_log(history.log).by_shard.values() for each in events]
    there = [each for each in log if not each.leg]
    renamed, taken = _first(
        (event, other)
        for event in there
        for other in there
        if event.type == RENAMED
        and (other.type, other.shard) == ("topic_created", event.shard)
        and other.position < event.position
        and other.id not in gone | {event.id}
    )
    facts = {**renamed.facts, "new_name": taken.key}
    return _with_event(history, renamed, replace(renamed, facts=facts))


def _rename(history: History) -> Operation:
    """Return the first rename of a topic that is never deleted, by the name it was created with."""
    return _first(
        op
        for op in history.operations
        if op.kind is OperationKind.RENAME and op.is_ok and op.key.endswith("stream-0")
    )


# The log -------------------------------------------------------------------------------------


def epoch_goes_back(history: History) -> History:
    """An assignment has the epoch of the one before it."""
    event = _event(history, lambda event: event.type == "topic_assigned" and event.epoch > 1)
    return _with_event(history, event, replace(event, epoch=event.epoch - 1))


def assigned_after_deletion(history: History) -> History:
    """A topic that was deleted is assigned."""
    deleted = _event(history, lambda event: event.type == "topic_deleted")
    like = _event(history, lambda event: event.type == "topic_assigned")
    last = [event for event in history.log if event.shard == deleted.shard][-1]
    owners = [e for e in history.log if e.type == "topic_assigned" and e.id == deleted.id]
    again = replace(
        like,
        shard=deleted.shard,
        position=last.position + 1,
        term=last.term,
        key=deleted.key,
        id=deleted.id,
        epoch=len(owners) + 1,
        reason="first_lookup",
    )
    return replace(history, log=(*history.log, again))


def position_is_missing(history: History) -> History:
    """The log has a hole."""
    event = _event(history, lambda event: event.type == "topic_assigned")
    return replace(history, log=tuple(each for each in history.log if each is not event))


def term_goes_back(history: History) -> History:
    """An entry of an earlier leader stands behind one of a later."""
    event = _event(history, lambda event: event.position > 2)
    return _with_event(history, event, replace(event, term=event.term - 1))


# Owners and messages -------------------------------------------------------------------------


def _move_id(event: LogEvent) -> int:
    return cast(int, event.facts["move"])


def decided_without_the_slot(history: History) -> History:
    """A shard that has released a slot decides once more about a topic in it."""
    move, event = _moved_topic(history)
    last = [each for each in history.log if each.shard == move.facts["from_shard"]][-1]
    late = replace(event, shard=last.shard, position=last.position + 1, term=last.term, leg=0)
    place = history.log.index(last) + 1
    return replace(history, log=(*history.log[:place], late, *history.log[place:]))


def decided_before_the_slot_came(history: History) -> History:
    """A slot is adopted later than its new shard has decided about a topic in it."""
    move, _ = _moved_topic(history)
    behind = [each for each in history.log if each.shard == move.shard][-1]
    late = replace(move, position=behind.position + 1, term=behind.term)
    nothing = replace(move, facts={})
    log = [nothing if each is move else each for each in history.log]
    place = log.index(behind) + 1
    return replace(history, log=(*log[:place], late, *log[place:]))


def slots_from_nowhere(history: History) -> History:
    """A shard adopts slots of a shard that did not have them."""
    move, _ = _moved_topic(history)
    facts = {**move.facts, "move": 999, "from_shard": 7}
    return _with_event(history, move, replace(move, facts=facts))


def _moved_topic(history: History) -> tuple[LogEvent, LogEvent]:
    """Return the last move of a slot, and an event behind it about a topic in it."""
    index = index_log(history.log)
    moves = [event for event in history.log if event.type == ADOPTED and event.facts.get("move")]
    last = {str(each.facts["came"]): each for each in sorted(moves, key=_move_id)}
    for move in last.values():
        for event in index.by_shard[move.shard]:
            is_of_move = event.leg and event.position > move.position
            if is_of_move and event.type == "topic_properties_set":
                came: Any = move.facts["came"]
                before = index.by_shard[cast(int, move.facts["from_shard"])]
                is_known = any(event.key == each.key or event.id == each.id for each in before)
                if came[0][0] == slot_of_event(event) and is_known:
                    return move, event
    raise NoPlace


def two_owners(history: History) -> History:
    """A message is acknowledged under an epoch that a later one had ended before it was sent."""
    last = _acked_publish(history, lambda publish: publish.epoch > 1)
    assert last.acked_ns is not None
    late = replace(
        last,
        producer="planted",
        epoch=last.epoch - 1,
        ledger=(last.epoch - 1) << 20 | 0xFFFFF,
        sent_ns=last.acked_ns + 1,
        acked_ns=last.acked_ns + 2,
    )
    return _with_publish(history, late)


def one_entry_claimed_twice(history: History) -> History:
    """Two epochs acknowledge the same entry, at the same time."""
    claimed = _acked_publish(history, lambda publish: publish.ledger >= 0)
    other = replace(claimed, producer="planted", epoch=claimed.epoch + 1)
    return _with_publish(history, other)


def lookup_is_too_old(history: History) -> History:
    """A lookup is answered with an epoch that was over for longer than an answer may be used."""
    later, stale = _moved(history)
    return _with_operation(history, _behind(later, stale, later_ns=_STALENESS_NS + 1))


def fresh_lookup_goes_back(history: History) -> History:
    """A lookup that is to be linearizable is answered an earlier epoch than a lookup before it."""
    later, stale = _moved(history)
    return _with_operation(history, replace(_behind(later, stale), argument={"fresh": True}))


def node_goes_back(history: History) -> History:
    """A discovery node answers an epoch, and a lookup that begins behind that an earlier one."""
    later, stale = _moved(history)
    known = replace(_behind(later, later.value), argument={"node": "discovery-1"}, op_id=1)
    assert known.returned_ns is not None
    gone_back = replace(_behind(known, stale), argument={"node": "discovery-1"}, op_id=2)
    return _with_operation(_with_operation(history, known), gone_back)


_STALENESS_NS = LOOKUP_STALENESS_MS_MAX * 1_000_000


def _moved(history: History) -> tuple[Operation, dict[str, object]]:
    """Return a lookup or move that was answered a later epoch than 1, and the answer before it."""
    index = index_log(history.log)
    for later in history.operations:
        epoch = later.value.get("epoch", 0)
        if later.kind not in (OperationKind.LOOKUP, OperationKind.MOVE) or not later.is_ok:
            continue
        assert isinstance(epoch, int)
        earlier = index.owners.get((str(later.value["topic_id"]), "", epoch - 1))
        if earlier is not None:
            return later, {
                **later.value,
                "epoch": earlier.epoch,
                "broker_id": earlier.broker_id,
                "session_id": earlier.session_id,
            }
    raise NoPlace


def _behind(seen: Operation, value: Mapping[str, object], *, later_ns: int = 1) -> Operation:
    """Return a lookup that begins ``later_ns`` after ``seen`` and is answered ``value``."""
    assert seen.returned_ns is not None
    invoked_ns = seen.returned_ns + later_ns
    return replace(
        seen,
        client="planted",
        kind=OperationKind.LOOKUP,
        value=value,
        invoked_ns=invoked_ns,
        returned_ns=invoked_ns + 1,
    )


def lookup_of_no_owner(history: History) -> History:
    """A lookup is answered with a broker that was never given the topic."""
    for operation in history.operations:
        if operation.kind is OperationKind.LOOKUP and operation.is_ok:
            value = {**operation.value, "broker_id": "planted"}
            return _instead(history, operation, replace(operation, value=value))
    raise NoPlace


def lost_message(history: History) -> History:
    """A message was acknowledged and cannot be read."""
    received = _received_acked(history)
    return replace(history, received=tuple(r for r in history.received if r is not received))


def phantom_message(history: History) -> History:
    """A message is read that no client sent."""
    like = _last_of_a_drain(history)
    planted = replace(like, producer="planted", entry=like.entry + 1)
    return replace(history, received=(*history.received, planted))


def message_stored_twice(history: History) -> History:
    """A message that was sent again is stored again."""
    like = _last_of_a_drain(history)
    planted = replace(like, entry=like.entry + 1)
    return replace(history, received=(*history.received, planted))


def messages_out_of_order(history: History) -> History:
    """Two messages of one producer are stored in the wrong order."""
    received = list(history.received)
    for place in range(len(received) - 1):
        first, second = received[place : place + 2]
        if (first.topic, first.producer) == (second.topic, second.producer):
            received[place] = replace(first, sequence=second.sequence)
            received[place + 1] = replace(second, sequence=first.sequence)
            return replace(history, received=tuple(received))
    raise NoPlace


# Watches -------------------------------------------------------------------------------------


def reordered_watch(history: History) -> History:
    """A watch is sent two events in the wrong order."""
    records = list(history.watch_records)
    for place in range(len(records) - 1):
        first, second = records[place : place + 2]
        if isinstance(first, Observation) and isinstance(second, Observation):
            records[place : place + 2] = [second, first]
            return replace(history, watch_records=tuple(records))
    raise NoPlace


def repeated_watch_event(history: History) -> History:
    """A watch is sent an event twice."""
    place = _observation(history)
    records = list(history.watch_records)
    records.insert(place, records[place])
    return replace(history, watch_records=tuple(records))


def gap_in_a_watch(history: History) -> History:
    """A watch misses an event that concerns it, and gets a progress message behind it."""
    place = _observation(history)
    records = list(history.watch_records)
    left = records.pop(place)
    assert isinstance(left, Observation)
    told = WatchProgress(left.watcher, left.shard, left.watch, left.position)
    records.insert(place, told)
    return replace(history, watch_records=tuple(records))


def watch_of_others(history: History) -> History:
    """A watch is sent an event that its filter leaves out."""
    log = {(event.shard, event.position): event for event in history.log}
    records = list(history.watch_records)
    names: tuple[str, ...] = ()
    told_to = 0
    for place, record in enumerate(records):
        if isinstance(record, WatchOpened):
            names = record.names
        position = getattr(record, "position", 0)
        other = log.get((record.shard, position - 1))
        is_foreign = other is not None and other.key not in names and told_to < position - 1
        if names and isinstance(record, Observation) and other is not None and is_foreign:
            told = (other.position, other.type, other.key)
            sent = Observation(record.watcher, record.shard, record.watch, *told)
            records.insert(place, sent)
            return replace(history, watch_records=tuple(records))
        told_to = position or getattr(record, "from_position", told_to)
    raise NoPlace


def snapshot_without_an_item(history: History) -> History:
    """A snapshot leaves something out."""
    records = list(history.watch_records)
    place = _place(records, SnapshotItem)
    del records[place]
    return replace(history, watch_records=tuple(records))


def snapshot_of_yesterday(history: History) -> History:
    """A snapshot has a topic as it was before its position."""
    records = list(history.watch_records)
    for place, item in enumerate(records):
        if isinstance(item, SnapshotItem) and item.state.get("version", 0) not in (0, 1):
            version = item.state["version"]
            assert isinstance(version, int)
            records[place] = replace(item, state={**item.state, "version": version - 1})
            return replace(history, watch_records=tuple(records))
    raise NoPlace


def views_differ(history: History) -> History:
    """Two replicas have different views at the same position."""
    first = _first(iter(history.view_hashes))
    planted = replace(first, digest="planted", node="planted")
    return replace(history, view_hashes=(*history.view_hashes, planted))


PLANTS: Sequence[Plant] = (
    Plant("stale read", FindingKind.VIOLATION, "linearizability", stale_read),
    Plant("topic back from the dead", FindingKind.VIOLATION, "linearizability", resurrected_topic),
    Plant("version that repeats", FindingKind.VIOLATION, "linearizability", repeated_version),
    Plant("stale policies", FindingKind.VIOLATION, "linearizability", stale_policies),
    Plant("two winners", FindingKind.VIOLATION, "linearizability", two_winners),
    Plant("lost policies", FindingKind.LOST, "acked set", lost_policies),
    Plant("phantom policies", FindingKind.PHANTOM, "reads", phantom_policies),
    Plant(
        "version of policies left out", FindingKind.VIOLATION, "log", policies_of_another_version
    ),
    Plant("lost and alive", FindingKind.VIOLATION, "log", lost_without_an_end),
    Plant("left for no reason", FindingKind.VIOLATION, "log", left_for_no_reason),
    Plant("lost create", FindingKind.LOST, "acked set", lost_create),
    Plant("lost change", FindingKind.LOST, "acked set", lost_change),
    Plant("lost at the end", FindingKind.LOST, "final state", lost_at_the_end),
    Plant("phantom create", FindingKind.PHANTOM, "acked set", phantom_create),
    Plant("phantom of a failure", FindingKind.PHANTOM, "acked set", phantom_of_a_failure),
    Plant("phantom read", FindingKind.PHANTOM, "reads", phantom_read),
    Plant("untrue refusal", FindingKind.VIOLATION, "linearizability", untrue_refusal),
    Plant("carried out twice", FindingKind.VIOLATION, "acked set", carried_out_twice),
    Plant("parent denied", FindingKind.VIOLATION, "parents", parent_denied),
    Plant("epoch that goes back", FindingKind.VIOLATION, "log", epoch_goes_back),
    Plant("assigned after deletion", FindingKind.VIOLATION, "log", assigned_after_deletion),
    Plant("position that is missing", FindingKind.VIOLATION, "log", position_is_missing),
    Plant("term that goes back", FindingKind.VIOLATION, "log", term_goes_back),
    Plant("two owners", FindingKind.OWNER_OVERLAP, "single owner", two_owners),
    Plant("one entry twice", FindingKind.OWNER_OVERLAP, "single owner", one_entry_claimed_twice),
    Plant("lookup that is too old", FindingKind.VIOLATION, "lookups", lookup_is_too_old),
    Plant("fresh lookup that goes back", FindingKind.VIOLATION, "lookups", fresh_lookup_goes_back),
    Plant("node that goes back", FindingKind.VIOLATION, "lookups", node_goes_back),
    Plant("lookup of no owner", FindingKind.VIOLATION, "lookups", lookup_of_no_owner),
    Plant("lost message", FindingKind.LOST, "messages", lost_message),
    Plant("phantom message", FindingKind.PHANTOM, "messages", phantom_message),
    Plant("message stored twice", FindingKind.VIOLATION, "messages", message_stored_twice),
    Plant("messages out of order", FindingKind.VIOLATION, "messages", messages_out_of_order),
    Plant("reordered watch", FindingKind.WATCH_ERROR, "watch order", reordered_watch),
    Plant("repeated watch event", FindingKind.WATCH_ERROR, "watch order", repeated_watch_event),
    Plant("gap in a watch", FindingKind.WATCH_ERROR, "watch order", gap_in_a_watch),
    Plant("watch of others", FindingKind.WATCH_ERROR, "watch order", watch_of_others),
    Plant(
        "snapshot without an item", FindingKind.WATCH_ERROR, "watch order", snapshot_without_an_item
    ),
    Plant("snapshot of yesterday", FindingKind.WATCH_ERROR, "watch order", snapshot_of_yesterday),
    Plant("views that differ", FindingKind.VIOLATION, "view hashes", views_differ),
)

RENAME_PLANTS: Sequence[Plant] = (
    Plant("lost rename", FindingKind.LOST, "acked set", lost_rename),
    Plant("phantom rename", FindingKind.PHANTOM, "acked set", phantom_rename),
    Plant("former name forgotten", FindingKind.VIOLATION, "linearizability", former_name_forgotten),
    Plant(
        "found before the rename",
        FindingKind.VIOLATION,
        "linearizability",
        found_before_the_rename,
    ),
    Plant("lookup of a former name", FindingKind.VIOLATION, "names", lookup_of_a_former_name),
    Plant("half of a rename", FindingKind.WATCH_ERROR, "watch order", half_of_a_rename),
    Plant("renamed with owners", FindingKind.VIOLATION, "log", renamed_with_owners),
    Plant("renamed to a name in use", FindingKind.VIOLATION, "log", renamed_to_a_name_in_use),
)
"""Of histories in which topics are renamed."""

MOVE_PLANTS: Sequence[Plant] = (
    Plant("decided without the slot", FindingKind.VIOLATION, "log", decided_without_the_slot),
    Plant("decided before it came", FindingKind.VIOLATION, "log", decided_before_the_slot_came),
    Plant("slots from nowhere", FindingKind.VIOLATION, "log", slots_from_nowhere),
)
"""Of histories in which slots move."""


# ---------------------------------------------------------------------------------------------


_EVENTS_OF = {
    OperationKind.DELETE: ("topic_deleted",),
    OperationKind.SET_PROPERTIES: ("topic_properties_set",),
    OperationKind.SET_POLICIES: ("policy_set", "policy_cleared"),
}


def _changes(history: History, kind: OperationKind) -> Iterator[tuple[Operation, ObjectState]]:
    """Yield acknowledged writes of topics with the state that each of them replaced."""
    index = index_log(history.log)
    for write in history.operations:
        known = index.keys.get(write.key)
        if known is None or write.kind is not kind or not write.is_ok or "://" not in write.key:
            continue
        for before, after in zip(known.states, known.states[1:], strict=False):
            is_deletion = kind is OperationKind.DELETE and not after.exists
            told = (write.value.get("id"), write.value.get("version", before.version + 1))
            if not before.exists or told != (before.id, before.version + 1):
                continue
            # A policy changes the version too, and a write that changed nothing may be told it.
            is_of_kind = after.event.type in _EVENTS_OF[kind]
            if is_deletion or (is_of_kind and after.exists and after.version == told[1]):
                yield write, before
                break


def _overwritten(history: History) -> tuple[Operation, ObjectState]:
    for found in _changes(history, OperationKind.SET_PROPERTIES):
        return found
    raise NoPlace


def _read(write: Operation, state: ObjectState) -> Operation:
    """Return a get that began when ``write`` had returned, and saw ``state``."""
    assert write.returned_ns is not None
    value = {"id": state.id, "version": state.version, "properties": dict(state.properties)}
    return Operation(
        *("planted", 1, OperationKind.GET, write.key, write.returned_ns + 1),
        returned_ns=write.returned_ns + 2,
        outcome="ok",
        value=value,
    )


def _acked(history: History, kind: OperationKind) -> Operation:
    found = (op for op in history.operations if op.kind is kind and op.is_ok and "://" in op.key)
    return _first(found)


def _event(history: History, wanted: Callable[[LogEvent], bool]) -> LogEvent:
    return _first(event for event in history.log if wanted(event))


def _acked_publish(history: History, wanted: Callable[[Publish], bool]) -> Publish:
    acked = [p for p in history.publishes if p.acked_ns is not None and wanted(p)]
    return _first(reversed(acked))


def _received_acked(history: History) -> Received:
    acked = {(p.topic, p.producer, p.sequence) for p in history.publishes if p.acked_ns}
    drained = {(each.consumer, each.topic) for each in history.drained}
    return _first(
        r
        for r in history.received
        if (r.topic, r.producer, r.sequence) in acked and (r.consumer, r.topic) in drained
    )


def _last_of_a_drain(history: History) -> Received:
    drained = {(each.consumer, each.topic) for each in history.drained}
    return _first(r for r in reversed(history.received) if (r.consumer, r.topic) in drained)


def _observation(history: History) -> int:
    """Return the place of an event that is not the first on its watch."""
    records = history.watch_records
    return _first(
        place
        for place in range(1, len(records))
        if isinstance(records[place], Observation) and isinstance(records[place - 1], Observation)
    )


def _place(records: Sequence[WatchRecord], kind: type[object]) -> int:
    return _first(place for place, record in enumerate(records) if isinstance(record, kind))


def _first(found: Iterator[T]) -> T:
    for each in found:
        return each
    raise NoPlace


def _version_at(state: ObjectState | None) -> int:
    return state.version if state is not None else 0


def _with_operation(history: History, operation: Operation) -> History:
    return replace(history, operations=(*history.operations, operation))


def _instead(history: History, old: Operation, new: Operation) -> History:
    kept = tuple(new if each is old else each for each in history.operations)
    return replace(history, operations=kept)


def _with_event(history: History, old: LogEvent, new: LogEvent) -> History:
    return replace(history, log=tuple(new if each is old else each for each in history.log))


def _with_publish(history: History, publish: Publish) -> History:
    return replace(history, publishes=(*history.publishes, publish))
