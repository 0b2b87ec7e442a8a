"""Pulsar's messages about scalable topics as values of the domain, its error codes as errors."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from nextgen.client.st.domain.assignment import AssignedSegment, Assignment, make_assignment
from nextgen.client.st.domain.layout import Layout, LayoutSegment, make_layout
from nextgen.client.st.domain.positions import Position
from nextgen.client.st.errors import (
    ConnectionFailed,
    MalformedLayout,
    NotSupported,
    ScalableTopicError,
    SegmentGone,
    ServerRefused,
    TopicNotFound,
)
from nextgen.kernel.limits.scalable import LAYOUT_SEGMENTS_MAX
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic
from nextgen.kernel.scalable.ranges import HASH_MAX, HashRange
from protos.pulsar import PulsarApi_pb2 as pulsar

_FINAL = frozenset(
    {
        pulsar.AuthenticationError,
        pulsar.AuthorizationError,
        pulsar.UnsupportedVersionError,
        pulsar.TopicNotFound,
        pulsar.SubscriptionNotFound,
        pulsar.InvalidTopicName,
        pulsar.IncompatibleSchema,
        pulsar.ConsumerAssignError,
        pulsar.NotAllowedError,
        pulsar.ProducerFenced,
    }
)
"""Codes after which a further attempt would fail in the same way."""


def error_of(code: int, message: str) -> ScalableTopicError:
    """Return the error for a server's answer: ``ConnectionFailed`` if it may pass."""
    if code == pulsar.TopicNotFound:
        return TopicNotFound(message or "the server does not have the topic")
    if code == pulsar.TopicTerminatedError:
        return SegmentGone(message or "the segment is sealed")
    if code in _FINAL:
        return ServerRefused(code, f"{pulsar.ServerError.Name(code)}: {message}")
    return ConnectionFailed(f"{_name_of(code)}: {message}")


def is_final(error: ScalableTopicError) -> bool:
    """Return whether a further attempt would fail in the same way."""
    return isinstance(error, TopicNotFound | ServerRefused | NotSupported)


def layout_of(update: pulsar.CommandScalableTopicUpdate) -> Layout:
    """Return the layout in an update without error.

    Raises:
        MalformedLayout: It has none, or one that cannot be.
    """
    if not update.HasField("dag"):
        raise MalformedLayout("an update has neither a layout nor an error")
    dag = update.dag
    if len(dag.segments) > LAYOUT_SEGMENTS_MAX:
        raise MalformedLayout(f"a layout has more than {LAYOUT_SEGMENTS_MAX} segments")
    try:
        topic = parse_topic(update.resolved_topic_name)
    except InvalidName as error:
        raise MalformedLayout(f"an update names no topic: {error}") from error
    return make_layout(
        dag.epoch,
        [_segment(topic, each) for each in dag.segments],
        controller_url=dag.controller_broker_url,
        controller_url_tls=dag.controller_broker_url_tls,
    )


def assignment_of(message: pulsar.ScalableConsumerAssignment) -> Assignment:
    """Return an assignment.

    Raises:
        MalformedLayout: It cannot be one.
    """
    return make_assignment(
        message.layout_epoch,
        (
            AssignedSegment(
                each.segment_id,
                _segment_topic(each.segment_topic),
                tuple((span.start, span.end) for span in each.bucket_ranges),
            )
            for each in message.segments
        ),
    )


def update_in(command: bytes) -> tuple[int, str] | None:
    """Return session id and reason if an unreadable command is the update of a layout.

    Such an update has a state or another required field that this release does not know.
    """
    try:
        parsed = pulsar.BaseCommand.FromString(command)
    except DecodeError:
        return None
    update = parsed.scalableTopicUpdate
    if parsed.type != pulsar.BaseCommand.SCALABLE_TOPIC_UPDATE or not update.HasField("session_id"):
        return None
    return update.session_id, "an update of a layout has a field that is not known here"


def position_of(message: pulsar.MessageIdData) -> Position:
    """Return the place of an entry; its batch index is not looked at."""
    return Position(message.ledgerId, message.entryId, partition=message.partition)


def id_data(position: Position) -> pulsar.MessageIdData:
    data = pulsar.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id)
    if position.partition >= 0:
        data.partition = position.partition
    return data


def lookup_name(topic: str) -> TopicName:
    """Return the parsed name of a topic that may be watched.

    Raises:
        ServerRefused: It is not one; the server would close the connection.
    """
    try:
        name = parse_topic(topic)
    except InvalidName as error:
        raise ServerRefused(pulsar.InvalidTopicName, str(error)) from error
    if name.domain not in (Domain.TOPIC, Domain.PERSISTENT) or name.partition is not None:
        raise ServerRefused(
            pulsar.InvalidTopicName, f"{topic} is neither a scalable nor a whole persistent topic"
        )
    return name


def _segment(topic: TopicName, message: pulsar.SegmentInfoProto) -> LayoutSegment:
    start, end = message.hash_start, message.hash_end
    if not start <= end <= HASH_MAX:
        raise MalformedLayout(f"segment {message.segment_id} has the range {start:#x} to {end:#x}")
    legacy = message.legacy_topic_name
    return LayoutSegment(
        segment_id=message.segment_id,
        hash_range=HashRange(start, end),
        is_active=message.state == pulsar.ACTIVE,
        topic=_segment_topic(legacy)
        if legacy
        else f"segment://{topic.tenant}/{topic.namespace}/{topic.base_name}/"
        f"{start:04x}-{end:04x}-{message.segment_id}",
        parents=tuple(message.parent_ids),
        created_at_ms=message.created_at_ms,
        is_legacy=bool(legacy),
        bucket_starts=tuple(message.entry_bucket_splits),
    )


def _segment_topic(name: str) -> str:
    try:
        return parse_topic(name).text
    except InvalidName as error:
        raise MalformedLayout(f"a segment is stored as no topic: {error}") from error


def _name_of(code: int) -> str:
    try:
        return pulsar.ServerError.Name(code)
    except ValueError:
        return f"error {code}"
