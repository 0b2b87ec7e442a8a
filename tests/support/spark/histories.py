"""A small history of a whole cluster, built event by event, and real exports of it.

``told_history`` has two tenants, five topics on three shards, and the cluster manager's log as
shard 0. Every rule of the shards holds in it: homes by slot, gates, epochs, versions, sessions. A
test that wants a broken one changes the events before it exports them::

    history = told_history()
    history.logs[1][4].topic_assigned.epoch = 9
    await history.export(directory)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nextgen.client.wire.policies import pack_policies
from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from nextgen.kernel.events.decider import Accepted, Rejected, fold
from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.kernel.governance.lookup_slo import LookupWindow
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import ID_ENTROPY_BYTES, is_id, mint_id, slot_of_id
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1 import events_pb2 as e
from shards.domain.scalable.commands import (
    CreateScalableTopic,
    DeleteScalableTopic,
    ScalableTopicCommand,
)
from shards.domain.scalable.decider import decide
from shards.domain.scalable.events import ScalableTopicEvent
from shards.domain.scalable.restore import restore_scalable
from shards.domain.scalable.state import ScalableTopic, ScalableTopicState, evolve
from shards.wire.event import encode_decided
from tests.support.logs.export_logs import FakeLog

TOLD_FROM_MS = 1_764_000_000_000
"""2025-11-24 16:00 UTC."""

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000

Logs = dict[int, list[Any]]


class History:
    """The logs of a cluster as they grow: positions are dense, homes are where the slot is.

    ``now_ms`` is the time of the next event; each event moves it on by one millisecond.
    """

    def __init__(self, shards: int = 3) -> None:
        self.table = initial_table(range(1, shards + 1))
        self.logs: Logs = {shard_id: [] for shard_id in range(shards + 1)}
        self.now_ms = TOLD_FROM_MS
        self.terms = dict.fromkeys(self.logs, 1)
        self.ids: dict[str, str] = {}
        """Latest id by name: of tenants, namespaces and topics."""
        self.epochs: dict[tuple[str, str], int] = {}
        """By topic id and unit."""
        self.sessions: dict[str, str] = {}
        """Latest session by broker."""
        self.session_epochs: dict[str, int] = {}
        self.layouts: dict[str, ScalableTopic] = {}
        """Of the scalable topics that there are."""
        self.former_names: dict[str, tuple[Any, ...]] = {}
        """Of renamed topics, by id: what their last rename left (``OldName`` of the rules)."""
        self.pointers: dict[str, str] = {}
        """Topic id by name: what the shard with the name's slot keeps."""
        for shard_id in self.shard_ids:
            ranges = [e.SlotRange(first=a, last=b) for a, b in self.table.ranges_of(shard_id)]
            self.add(shard_id, slots_adopted=e.SlotsAdopted(ranges=ranges, shard_map_version=1))

    @property
    def shard_ids(self) -> tuple[int, ...]:
        """The shards that hold slots: all but the cluster manager's group."""
        return tuple(shard_id for shard_id in self.logs if shard_id)

    @property
    def rows(self) -> int:
        return sum(map(len, self.logs.values()))

    def home(self, key: str) -> int:
        """Return the shard of a tenant's, namespace's, topic's or broker's name.

        A topic that is there is where the slot in its id is.
        """
        topic_id = self.ids.get(key, "") if "://" in key else ""
        if is_id(topic_id):
            return self.table.shard_of(slot_of_id(topic_id))
        return self.home_of_name(key)

    def home_of_name(self, key: str) -> int:
        """Return the shard that has the slot of a name."""
        return self.table.shard_for_key(parse_topic(key).routing_key if "://" in key else key)

    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    def add(self, shard_id: int, *, by_command: bool = False, **payload: Any) -> Any:
        """Append one event with the one payload that is named; return it."""
        log = self.logs[shard_id]
        event = e.Event(
            position=len(log) + 1,
            term=self.terms[shard_id],
            shard_id=shard_id,
            time_ms=self.now_ms,
            schema_version=1,
            **payload,
        )
        if by_command:
            event.causation_id = hashlib.md5(f"{shard_id}/{len(log)}".encode()).digest()
        log.append(event)
        self.now_ms += 1
        return event

    def create_tenant(self, name: str, **properties: str) -> str:
        tenant_id = self._mint(name)
        created = e.TenantCreated(tenant_id=tenant_id, name=name, properties=properties)
        self.add(self.home(name), by_command=True, tenant_created=created)
        return tenant_id

    def create_namespace(self, name: str, **properties: str) -> str:
        tenant = name.partition("/")[0]
        self.open_gate(self.home(name), "tenant", tenant)
        namespace_id = self._mint(name)
        created = e.NamespaceCreated(
            namespace_id=namespace_id,
            name=name,
            tenant_id=self.ids[tenant],
            properties=properties,
        )
        self.add(self.home(name), by_command=True, namespace_created=created)
        return namespace_id

    def create_topic(self, name: str, partitions: int = 0, **properties: str) -> str:
        namespace = name.split("://")[1].rpartition("/")[0]
        self.open_gate(self.home(name), "namespace", namespace)
        self.free_name(name)
        topic_id = self._mint(name)
        created = e.TopicCreated(
            topic_id=topic_id,
            name=name,
            partitions=partitions,
            properties=properties,
            namespace_id=self.ids[namespace],
        )
        self.add(self.home(name), by_command=True, topic_created=created)
        return topic_id

    def free_name(self, name: str, topic_id: str = "") -> None:
        """Take away a pointer to another topic, as the shard of a name does before somebody else
        gets the name."""
        before = self.pointers.get(name, topic_id)
        if before != topic_id:
            del self.pointers[name]
            freed = e.TopicNameFreed(name=name, topic_id=before)
            self.add(self.home_of_name(name), topic_name_freed=freed)

    def grow_topic(self, name: str, partitions: int) -> None:
        grown = e.TopicPartitionsGrown(name=name, topic_id=self.ids[name], partitions=partitions)
        self.add(self.home(name), by_command=True, topic_partitions_grown=grown)

    def create_shadow(self, name: str, source: str, partitions: int = 0) -> str:
        """Create a shadow of a topic that is there, in the order in which shards write it."""
        shard_id, source_id = self.home(name), self.ids[source]
        home = self.home(source)
        of_source = e.ShadowSourceCreated(name=source, topic_id=source_id)
        self.add(home, shadow_source_created=of_source)
        recorded = e.ShadowShardRecorded(name=source, topic_id=source_id, shard_id=shard_id)
        self.add(home, shadow_shard_recorded=recorded)
        self.open_gate(shard_id, "topic", source)
        return self.create_topic(name, partitions, **{SHADOW_SOURCE_PROPERTY: source})

    def delete_source(self, name: str, shard_id: int) -> None:
        """Delete the source of shadows that a shard had."""
        source_id, home = self.ids[name], self.home(name)
        held = e.ShadowSourceHeld(name=name, topic_id=source_id, is_deleting=True)
        self.add(home, shadow_source_held=held)
        gate = e.ParentGateClosed(
            parent_kind="topic",
            parent_name=name,
            parent_id=source_id,
            attempt=(self.terms[home] << 32) + 1,
        )
        self.add(shard_id, parent_gate_closed=gate)
        self.delete_topic(name)
        removed = e.ShadowSourceRemoved(name=name, topic_id=source_id)
        self.add(home, shadow_source_removed=removed)

    def create_scalable(self, name: str, segments: int = 1, **properties: str) -> str:
        """Create a scalable topic, which begins with ``segments``."""
        topic_id = self.create_topic(name, **properties)
        self.change_layout(name, CreateScalableTopic(name, topic_id, segments, self.now_ms))
        return topic_id

    def change_layout(self, name: str, command: ScalableTopicCommand) -> list[Any]:
        """Decide a command about a scalable topic; return its events, none if it was refused."""
        return self._add_layout(name, decide(self.layouts.get(name), command))

    def restore_scalable(self, name: str, wanted: ScalableTopic) -> str:
        """Create a scalable topic with the layout of another one, as a restore does."""
        topic_id = self.create_topic(name)
        layout = replace(wanted, name=name, topic_id=topic_id)
        restored = restore_scalable(None, layout, topic_id, 1 << GENERATION_BITS, self.now_ms)
        self._add_layout(name, restored)
        return topic_id

    def _add_layout(
        self, name: str, decision: Accepted[ScalableTopicEvent] | Rejected
    ) -> list[Any]:
        if not isinstance(decision, Accepted) or not decision.events:
            return []
        state: ScalableTopicState = self.layouts.get(name)
        state = fold(evolve, state, decision.events)
        if state is None:
            del self.layouts[name]
        else:
            self.layouts[name] = state
        packed = encode_decided(decision.events, command_id=b"", outcome=b"", time_ms=self.now_ms)
        added = []
        for event in e.DecidedCommand.FromString(packed).events:
            payload = event.WhichOneof("payload")
            added.append(self.add(self.home(name), **{payload: getattr(event, payload)}))
        return added

    def delete_topic(self, name: str) -> None:
        home, topic_id = self.home(name), self.ids[name]
        self.unassign_all(name, "topic_deleted")
        del self.ids[name]
        former_names = [each.name for each in self.former_names.pop(topic_id, ())]
        deleted = e.TopicDeleted(name=name, topic_id=topic_id, former_names=former_names)
        self.add(home, by_command=True, topic_deleted=deleted)
        if name in self.layouts:
            self.change_layout(name, DeleteScalableTopic(name, topic_id))

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace that has no topics: gates close in every shard first."""
        namespace_id = self.ids.pop(name)
        home = self.home(name)
        started = e.NamespaceDeletionStarted(name=name)
        self.add(home, by_command=True, namespace_deletion_started=started)
        self._close_gates("namespace", name, namespace_id)
        self.add(home, namespace_deleted=e.NamespaceDeleted(name=name, namespace_id=namespace_id))

    def delete_tenant(self, name: str) -> None:
        """Delete a tenant that has no namespaces: gates close in every shard first."""
        tenant_id = self.ids.pop(name)
        home = self.home(name)
        started = e.TenantDeletionStarted(name=name)
        self.add(home, by_command=True, tenant_deletion_started=started)
        self._close_gates("tenant", name, tenant_id)
        self.add(home, tenant_deleted=e.TenantDeleted(name=name, tenant_id=tenant_id))

    def set_policies(self, scope: str, name: str, version: int, policies: Policies) -> None:
        packed = pack_policies(policies)
        said = e.PolicySet(
            scope=scope, name=name, policy=packed, version=version, object_id=self.ids[name]
        )
        self.add(self.home(name), by_command=True, policy_set=said)

    def clear_policies(self, scope: str, name: str, version: int) -> None:
        cleared = e.PolicyCleared(scope=scope, name=name, version=version, object_id=self.ids[name])
        self.add(self.home(name), by_command=True, policy_cleared=cleared)

    def start_broker(self, broker_id: str, capacity_units: int = 100, zone: str = "a") -> str:
        """Begin a session; all of its capacity is granted to the cluster manager."""
        epoch = self.session_epochs.get(broker_id, 0) + 1
        session_id = self._mint(broker_id)
        self.session_epochs[broker_id] = epoch
        self.sessions[broker_id] = session_id
        endpoints = e.BrokerEndpoints(
            pulsar_url=f"pulsar://{broker_id}:6650", grpc=f"{broker_id}:7000"
        )
        established = e.BrokerSessionEstablished(
            broker_id=broker_id,
            session_id=session_id,
            epoch=epoch,
            endpoints=endpoints,
            capacity_units=capacity_units,
            zone=zone,
            established_at_ms=self.now_ms,
        )
        home = self.home(broker_id)
        self.add(home, by_command=True, broker_session_established=established)
        granted = e.CapacityGranted(
            broker_id=broker_id, session_id=session_id, units=capacity_units
        )
        self.add(home, capacity_granted=granted)
        recorded = e.BrokerRecorded(
            broker_id=broker_id,
            session_id=session_id,
            epoch=epoch,
            is_live=True,
            endpoints=endpoints,
            capacity_units=capacity_units,
            zone=zone,
        )
        self.add(0, broker_recorded=recorded)
        return session_id

    def end_broker(self, broker_id: str, reason: str = "expired") -> None:
        """End the broker's session. Its units stay with it until they are assigned anew."""
        epoch, session_id = self.session_epochs[broker_id], self.sessions[broker_id]
        ended = e.BrokerSessionEnded(
            broker_id=broker_id, session_id=session_id, epoch=epoch, reason=reason
        )
        self.add(self.home(broker_id), broker_session_ended=ended)
        recorded = e.BrokerRecorded(broker_id=broker_id, session_id=session_id, epoch=epoch)
        self.add(0, broker_recorded=recorded)

    def drain(self, broker_id: str, revision: int, *, draining: bool = True) -> None:
        said = e.BrokerDrainSet(
            broker_id=broker_id,
            session_id=self.sessions[broker_id],
            draining=draining,
            revision=revision,
        )
        self.add(self.home(broker_id), by_command=True, broker_drain_set=said)

    def report_load(
        self, broker_id: str, topics: int, rates: Mapping[str, float], cpu_fraction: float = 0.2
    ) -> None:
        """Report a broker's load; ``rates`` are bytes in per second of its busiest units."""
        total = sum(rates.values())
        busiest = [
            e.TopicLoad(
                name=name,
                unit=parse_topic(name).unit.text,
                bytes_in_per_second=rate,
                bytes_out_per_second=2 * rate,
                messages_in_per_second=rate / 100,
                messages_out_per_second=rate / 50,
                producers=1,
                consumers=2,
                measured_at_ms=self.now_ms,
            )
            for name, rate in sorted(rates.items(), key=lambda item: (-item[1], item[0]))
        ]
        load = e.LoadReport(
            topics=topics,
            cpu_fraction=cpu_fraction,
            memory_bytes=512 * 2**20,
            memory_limit_bytes=2**30,
            cores=4,
            bytes_in_per_second=total,
            bytes_out_per_second=2 * total,
            messages_in_per_second=total / 100,
            messages_out_per_second=total / 50,
            connections=topics,
            open_topics=topics,
            producers=topics,
            consumers=2 * topics,
            measured_at_ms=self.now_ms,
            busiest=busiest,
        )
        reported = e.BrokerLoadReported(
            broker_id=broker_id, session_id=self.sessions[broker_id], load=load
        )
        self.add(self.home(broker_id), broker_load_reported=reported)

    def assign(
        self,
        name: str,
        broker_id: str,
        unit: str = "",
        reason: str = "first_lookup",
        used_epoch: int = 0,
    ) -> None:
        """Give a unit of a topic to the broker's latest session, at the next epoch.

        That is above ``used_epoch``, which its ledger knows.
        """
        topic_id = self.ids[name]
        epoch = max(abs(self.epochs.get((topic_id, unit), 0)), used_epoch) + 1
        self.epochs[topic_id, unit] = epoch
        seen = e.CandidateSeen(broker_id=broker_id, units_used=1, units_leased=10)
        assigned = e.TopicAssigned(
            topic_id=topic_id,
            unit=unit,
            name=_unit_name(name, unit, self.layouts.get(name)),
            epoch=epoch,
            broker_id=broker_id,
            session_id=self.sessions[broker_id],
            reason=reason,
            decision=e.PlacementDecision(rule="two_choices", candidates=2, compared=[seen]),
            used_epoch=used_epoch,
        )
        by_command = reason in ("first_lookup", "moved")
        self.add(self.home(name), by_command=by_command, topic_assigned=assigned)

    def unassign_all(self, name: str, reason: str) -> None:
        """Take the units of a topic from their owners."""
        topic_id = self.ids[name]
        for (of_topic, unit), epoch in sorted(self.epochs.items()):
            if of_topic == topic_id and epoch > 0:
                self.unassign(name, unit, reason)

    def unassign(self, name: str, unit: str = "", reason: str = "idle") -> None:
        """Take a unit from its owner. A negative epoch records that it has none."""
        key = (self.ids[name], unit)
        unassigned = e.TopicUnassigned(
            topic_id=key[0],
            unit=unit,
            name=_unit_name(name, unit, self.layouts.get(name)),
            epoch=self.epochs[key],
            reason=reason,
        )
        self.epochs[key] = -self.epochs[key]
        self.add(self.home(name), topic_unassigned=unassigned)

    def record_lookups(
        self, node_id: str, latency_counts: tuple[int, ...], errors: int = 0, process: str = "1-1"
    ) -> None:
        """Record the window of the minute that has just ended, as a discovery process does."""
        began_at_ms = self.now_ms // MINUTE_MS * MINUTE_MS - MINUTE_MS
        window = LookupWindow(node_id, process, began_at_ms, errors, latency_counts)
        recorded = e.LookupWindowRecorded(
            node_id=node_id,
            process=process,
            began_at_ms=began_at_ms,
            lookups=window.lookups,
            errors=errors,
            too_slow=window.too_slow,
            latency_counts=latency_counts,
            is_bad=window.is_bad,
            why_bad=window.why_bad,
        )
        self.add(0, lookup_window_recorded=recorded)

    async def export(self, directory: Path, *, file_rows: int = 1_000_000) -> Path:
        """Write a real export of the logs as they are; shard 0 is left out if it is empty."""
        logs = {shard_id: log for shard_id, log in self.logs.items() if log}
        limits = FileLimits(rows=file_rows)
        await export_log(FakeLog(logs), LocalStore(directory), limits=limits)
        return directory

    def _mint(self, name: str) -> str:
        entropy = hashlib.sha256(f"{name}/{self.now_ms}".encode()).digest()[:ID_ENTROPY_BYTES]
        key = parse_topic(name).routing_key if "://" in name else name
        minted = mint_id(slot_of(key), entropy)
        self.ids[name] = minted
        return minted

    def open_gate(self, shard_id: int, kind: str, parent: str) -> None:
        parent_id = self.ids[parent]
        is_open = any(
            event.parent_gate_opened.parent_id == parent_id for event in self.logs[shard_id]
        )
        if not is_open:
            gate = e.ParentGateOpened(parent_kind=kind, parent_name=parent, parent_id=parent_id)
            self.add(shard_id, by_command=True, parent_gate_opened=gate)

    def _close_gates(self, kind: str, parent: str, parent_id: str) -> None:
        for shard_id in self.shard_ids:
            attempt = (self.terms[self.home(parent)] << 32) + 1
            gate = e.ParentGateClosed(
                parent_kind=kind, parent_name=parent, parent_id=parent_id, attempt=attempt
            )
            self.add(shard_id, parent_gate_closed=gate)


def told_history() -> History:
    """Return a history of two days: brokers start, one dies, topics are created, move and go."""
    history = History()
    for broker_id in ("broker-1", "broker-2", "broker-3"):
        history.start_broker(broker_id)
    history.create_tenant("acme", owner="payments")
    history.create_tenant("gone")
    history.create_namespace("acme/orders")
    history.create_namespace("acme/audit")
    history.set_policies("tenant", "acme", 1, Policies(message_ttl_ms=60_000))
    history.set_policies("namespace", "acme/orders", 1, Policies(message_ttl_ms=30_000))
    history.set_policies(
        "namespace", "acme/orders", 2, Policies(topics_max=1_000, message_ttl_ms=30_000)
    )
    history.clear_policies("tenant", "acme", 2)
    history.delete_tenant("gone")
    _tell_topics(history)
    _tell_a_death(history)
    _tell_an_end(history)
    return history


PAID = "persistent://acme/orders/paid"
SENT = "persistent://acme/orders/sent"
SPLIT = "persistent://acme/orders/split"
SHORT = "persistent://acme/audit/short"
AGAIN = "persistent://acme/audit/again"

GOOD_COUNTS = (90, 5, 3, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
BAD_COUNTS = (50, 5, 3, 1, 1, 0, 0, 0, 0, 0, 30, 8, 2)


def _tell_topics(history: History) -> None:
    history.wait(MINUTE_MS)
    for name in (PAID, SENT, SHORT):
        history.create_topic(name)
    history.create_topic(SPLIT, partitions=2, team="orders")
    history.assign(PAID, "broker-1")
    history.assign(SENT, "broker-2")
    history.assign(SPLIT, "broker-1", "p0")
    history.assign(SPLIT, "broker-3", "p1")
    history.assign(SHORT, "broker-3")
    history.set_policies("topic", PAID, 1, Policies(deduplication=True))
    history.wait(MINUTE_MS)
    history.record_lookups("discovery-1", GOOD_COUNTS)
    history.record_lookups("discovery-2", GOOD_COUNTS, process="2-1")


def _tell_a_death(history: History) -> None:
    history.wait(HOUR_MS)
    history.report_load("broker-1", 2, {PAID: 9_000.0, f"{SPLIT}-partition-0": 1_000.0})
    history.report_load("broker-2", 1, {SENT: 500.0})
    history.end_broker("broker-1")
    history.assign(PAID, "broker-2", reason="broker_lost")
    history.assign(SPLIT, "broker-2", "p0", reason="broker_lost")
    history.wait(MINUTE_MS)
    history.record_lookups("discovery-1", BAD_COUNTS, errors=3)
    history.record_lookups("discovery-2", GOOD_COUNTS, process="2-1")
    history.start_broker("broker-1")
    history.assign(PAID, "broker-1", reason="rebalanced")
    for shard_id in history.terms:
        history.terms[shard_id] += 1


def _tell_an_end(history: History) -> None:
    history.wait(DAY_MS)
    history.grow_topic(SPLIT, 3)
    history.unassign(SENT)
    history.delete_topic(SHORT)
    history.create_topic(AGAIN)
    history.delete_topic(AGAIN)
    history.create_topic(AGAIN)
    history.assign(AGAIN, "broker-2")
    history.drain("broker-3", 1)
    history.assign(SPLIT, "broker-2", "p1", reason="drained")
    history.end_broker("broker-3", reason="closed")
    history.start_broker("broker-3", zone="b")
    history.wait(HOUR_MS)
    history.assign(PAID, "broker-3", reason="moved")
    history.report_load("broker-3", 1, {PAID: 12_000.0})
    history.record_lookups("discovery-1", GOOD_COUNTS)


def tell_shadows(history: History) -> None:
    """Tell of a shadow that stays, and of one that goes, with its source behind it."""
    history.create_shadow("persistent://acme/audit/shadow", PAID)
    source, shadow = "persistent://acme/orders/source", "persistent://acme/audit/short"
    history.create_topic(source)
    history.create_shadow(shadow, source)
    history.delete_topic(shadow)
    history.delete_source(source, history.home(shadow))


def _unit_name(name: str, unit: str, layout: ScalableTopic | None) -> str:
    """Return the canonical name of a unit: that of the topic, the partition or the segment."""
    if layout is None:
        return f"{name}-partition-{unit[1:]}" if unit else name
    planned = () if layout.operation is None else layout.operation.children
    known = (*layout.segments.values(), *planned, *layout.removals)
    (segment,) = [each for each in known if each.unit.text == unit]
    return segment.name_in(parse_topic(name))
