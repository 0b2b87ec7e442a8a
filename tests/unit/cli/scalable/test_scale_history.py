"""Why a topic was changed by itself: which actions are shown, and how."""

from __future__ import annotations

from nextgen.cli.scalable.scale_history import actions_of, lines
from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.layouts_pb2 import GroupSizes, SegmentLoad, SegmentRates

NAME = "topic://acme/orders/paid"
AT_MS = 1_700_000_000_000


def decided(operation: int, kind: str = "split", name: str = NAME, **more: object) -> pb.Event:
    fields = {
        "name": name,
        "operation_id": operation,
        "kind": kind,
        "segments": [0],
        "reason": "msgRateIn",
        "evaluated_at_ms": AT_MS,
        "groups": GroupSizes(consumers=3, sharing=2),
        "policy": AutoScalePolicy(max_segments=8).text,
        "loads": [SegmentLoad(segment_id=0, rates=SegmentRates(messages_in=20_000.4))],
        **more,
    }
    why = pb.AutoScaleDecided(**fields)  # type: ignore[arg-type]
    return pb.Event(shard_id=2, position=40 + operation, time_ms=AT_MS, auto_scale_decided=why)


def committed(operation: int, name: str = NAME) -> pb.Event:
    changed = pb.LayoutChanged(name=name, operation_id=operation, epoch=7, kind="split")
    return pb.Event(time_ms=AT_MS + 250, layout_changed=changed)


def created() -> pb.Event:
    return pb.Event(scalable_topic_created=pb.ScalableTopicCreated(name=NAME))


def test_an_action_is_shown_with_its_rule_its_numbers_and_what_the_policy_changes():
    (action,) = actions_of(NAME, [created(), decided(1), committed(1)])

    assert list(lines(action)) == [
        "2023-11-14 22:13:20.000  2:41       split of 0",
        "                           because its messages in per second were above "
        "splitMsgRateInThreshold",
        "                           segment 0: 20,000 msg/s in, 0 msg/s out, 0 B/s in, 0 B/s out",
        "                           consumers 3, who share segments 2",
        "                           policy: maxSegments 8",
        "                           committed after 0.250 s as epoch 7",
    ]


def test_outcomes_are_those_of_the_same_topic():
    abandoned = pb.LayoutChangeAbandoned(name=NAME, operation_id=2, reason="no broker")
    events = [
        decided(1, name=f"{NAME}2"),
        created(),
        decided(1, segments=[1, 2], kind="merge", reason="cold"),
        committed(1, name=f"{NAME}2"),
        decided(2),
        pb.Event(time_ms=AT_MS + 30_000, layout_change_abandoned=abandoned),
        decided(3, kind="rebucket", buckets=8, reason="of a later release", policy=""),
        committed(9),
    ]

    shown = actions_of(NAME, events)

    assert [(each.kind, each.outcome) for each in shown] == [
        ("merge", "under way"),
        ("split", "taken back"),
        ("rebucket", "under way"),
    ]
    assert "taken back after 30.000 s: no broker took over" in list(lines(shown[1]))[-1]
    rebucket = list(lines(shown[2]))
    assert rebucket[0].endswith("rebucket of 0 to 8 buckets")
    assert rebucket[1].endswith("because of a later release")
    assert rebucket[-2].endswith("policy: all defaults")
    assert any("segment 2: no load on record" in line for line in lines(shown[0]))


def test_a_topic_of_the_same_name_begins_anew():
    assert actions_of(NAME, [decided(1), created()]) == []
