"""Layouts and assignments out of Pulsar's messages, however damaged."""

from __future__ import annotations

import pytest

from nextgen.client.st.domain.assignment import AssignedSegment, Assignment
from nextgen.client.st.errors import (
    ConnectionFailed,
    MalformedLayout,
    ServerRefused,
    TopicNotFound,
)
from nextgen.client.st.wire import (
    assignment_of,
    error_of,
    is_final,
    layout_of,
    lookup_name,
    update_in,
)
from nextgen.kernel.limits.scalable import LAYOUT_SEGMENTS_MAX
from nextgen.pulsar.frames import MalformedFrame, parse_command
from protos.pulsar import PulsarApi_pb2 as pulsar


def update(*segments: pulsar.SegmentInfoProto, topic: str = "topic://public/default/a/b"):
    dag = pulsar.ScalableTopicDAG(epoch=4, segments=segments, controller_broker_url="pulsar://c:1")
    return pulsar.CommandScalableTopicUpdate(session_id=1, dag=dag, resolved_topic_name=topic)


def info(segment_id: int, start: int, end: int, **fields) -> pulsar.SegmentInfoProto:
    return pulsar.SegmentInfoProto(
        segment_id=segment_id,
        hash_start=start,
        hash_end=end,
        state=fields.pop("state", pulsar.ACTIVE),
        created_at_epoch=0,
        created_at_ms=5,
        **fields,
    )


def test_a_layout_names_its_segments() -> None:
    layout = layout_of(
        update(
            info(
                0, 0, 0xFFFF, state=pulsar.SEALED, legacy_topic_name="persistent://public/default/x"
            ),
            info(1, 0, 0x7FFF, parent_ids=[0], entry_bucket_splits=[0x8000]),
            info(2, 0x8000, 0xFFFF, parent_ids=[0]),
        )
    )

    assert layout.epoch == 4
    assert layout.controller_url == "pulsar://c:1"
    assert [each.topic for each in (*layout.sealed, *layout.active)] == [
        "persistent://public/default/x",
        "segment://public/default/a/b/0000-7fff-1",
        "segment://public/default/a/b/8000-ffff-2",
    ]
    assert layout.active[0].bucket_starts == (0x8000,)
    assert layout.active[0].parents == (0,)


@pytest.mark.parametrize(
    "message",
    [
        pulsar.CommandScalableTopicUpdate(session_id=1),
        update(info(0, 0, 0xFFFF), topic=""),
        update(info(0, 0, 0xFFFF), topic="nonsense://a/b/c"),
        update(info(0, 5, 4)),
        update(info(0, 0, 0x10000)),
        update(info(0, 0, 0xFFFF, legacy_topic_name="no://name")),
        update(info(0, 0, 0x8000), info(1, 0x8000, 0xFFFF)),
    ],
)
def test_what_is_no_layout_is_refused(message: pulsar.CommandScalableTopicUpdate) -> None:
    with pytest.raises(MalformedLayout):
        layout_of(message)


def test_more_than_LAYOUT_SEGMENTS_MAX_segments_are_refused_before_they_are_looked_at() -> None:
    message = update(*[info(0, 0, 0)] * (LAYOUT_SEGMENTS_MAX + 1))

    with pytest.raises(MalformedLayout, match="more than"):
        layout_of(message)


def test_an_update_with_an_unknown_state_is_found_in_its_bytes() -> None:
    command = pulsar.BaseCommand(
        type=pulsar.BaseCommand.SCALABLE_TOPIC_UPDATE, scalableTopicUpdate=update(info(0, 0, 1))
    )
    known = b"\x20\x00"  # state = ACTIVE
    data = command.SerializeToString()
    assert data.count(known) == 1
    unknown = data.replace(known, b"\x20\x09")

    with pytest.raises(MalformedFrame):
        parse_command(unknown)
    found = update_in(unknown)
    assert found is not None
    assert found[0] == 1
    assert update_in(b"\xff\xff") is None
    assert update_in(pulsar.BaseCommand(type=pulsar.BaseCommand.PING).SerializeToString()) is None


def test_an_assignment_has_the_ranges_of_shared_segments() -> None:
    topic = "segment://public/default/t/0000-ffff-1"
    message = pulsar.ScalableConsumerAssignment(
        layout_epoch=2,
        segments=[
            pulsar.ScalableAssignedSegment(
                segment_id=1,
                hash_start=0,
                hash_end=0xFFFF,
                segment_topic=topic,
                bucket_ranges=[pulsar.IntRange(start=0, end=9), pulsar.IntRange(start=10, end=99)],
            )
        ],
    )

    assert assignment_of(message) == Assignment(2, (AssignedSegment(1, topic, ((0, 9), (10, 99))),))
    message.segments[0].segment_topic = "segment://nothing"
    with pytest.raises(MalformedLayout):
        assignment_of(message)


@pytest.mark.parametrize(
    ("code", "kind", "is_last"),
    [
        (pulsar.TopicNotFound, TopicNotFound, True),
        (pulsar.NotAllowedError, ServerRefused, True),
        (pulsar.AuthorizationError, ServerRefused, True),
        (pulsar.UnknownError, ConnectionFailed, False),
        (pulsar.ServiceNotReady, ConnectionFailed, False),
        (99, ConnectionFailed, False),
    ],
)
def test_codes_are_errors(code: int, kind: type[Exception], is_last: bool) -> None:
    error = error_of(code, "why")

    assert isinstance(error, kind)
    assert is_final(error) is is_last


@pytest.mark.parametrize(
    "name", ["segment://a/b/c/0000-ffff-0", "a/b", "t-partition-1", "x://a/b/c"]
)
def test_only_whole_topics_can_be_watched(name: str) -> None:
    with pytest.raises(ServerRefused):
        lookup_name(name)
    assert lookup_name("t").text == "persistent://public/default/t"
