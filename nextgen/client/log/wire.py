"""A replicated log on the wire: the status of a replica, and its stored events.

Shards and the cluster manager keep the same kind of log, so tools read both alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from nextgen.replication.ports import Entry, LogStatus, MemberProgress, ViewDigest
from protos.nextgen.v1.cluster_service_pb2 import MemberProgress as MemberProgressMessage
from protos.nextgen.v1.cluster_service_pb2 import ReplicaStatus
from protos.nextgen.v1.cluster_service_pb2 import ViewDigest as ViewDigestMessage
from protos.nextgen.v1.events_pb2 import DecidedCommand, Event

SCHEMA_VERSION_FIRST = 1
"""The schema version of an event that has none."""


def replica_status(status: LogStatus, node_id: str) -> ReplicaStatus:
    """Return the status of ``node_id``'s replica."""
    return ReplicaStatus(
        group_id=status.group_id,
        node_id=node_id,
        role=status.role.value,
        term=status.term,
        leader_id=status.leader_id or "",
        last_index=status.last_index,
        commit_index=status.commit_index,
        commit_position=status.commit_position,
        applied_index=status.applied.index,
        applied_position=status.applied.position,
        first_position=status.first_position,
        view_lag_ms=status.view_lag_ms,
        journal_bytes=status.journal_bytes,
        elections=status.elections,
        voters=status.members,
        learners=status.learners,
        configuration_index=status.configuration_index,
        progress=[_progress(member) for member in status.progress],
        disk_trouble=status.disk_trouble,
        digest=_digest(status.digest),
        divergence=status.divergence,
    )


def _progress(member: MemberProgress) -> MemberProgressMessage:
    return MemberProgressMessage(
        node_id=member.node_id,
        is_connected=member.is_connected,
        match_index=member.match_index,
        applied_index=member.applied_index,
        gets_snapshot=member.gets_snapshot,
    )


def _digest(digest: ViewDigest | None) -> ViewDigestMessage | None:
    if digest is None:
        return None
    return ViewDigestMessage(index=digest.index, position=digest.position, digest=digest.digest)


def filled_events(entry: Entry, shard_id: int) -> Iterator[Event]:
    """Yield the stored events of ``entry`` with position, term, shard, time and cause filled in."""
    position, term = entry.first_position, entry.term
    for record in entry.records:
        decided = DecidedCommand.FromString(record.payload)
        time_ms, command_id = decided.time_ms, decided.command_id
        for event in decided.events:
            event.position = position
            event.term = term
            event.shard_id = shard_id
            event.time_ms = time_ms
            event.causation_id = command_id
            if not event.schema_version:
                event.schema_version = SCHEMA_VERSION_FIRST
            position += 1
            yield event
