"""Changes of a watch, their tokens, and their fold."""

from dataclasses import replace

import pytest

from nextgen.client.discovery.watch import _Place
from nextgen.client.model import Topic
from nextgen.client.watch_model import (
    POSITION_MAX,
    Assignment,
    Change,
    ChangeKind,
    WatchedObjects,
    happened,
    parse_token,
    token_of,
)
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.policies import NO_POLICIES
from nextgen.kernel.routing.slots import SHARD_ID_MAX
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition, WatchUpdate
from protos.nextgen.v1.events_pb2 import (
    Event,
    PolicyCleared,
    PolicySet,
    TopicAssigned,
    TopicUnassigned,
)
from protos.nextgen.v1.policies_pb2 import Policies
from tests.support.discovery.fake_shard_changes import created, deleted, properties_set, topic_item


def update(shard_id=1, position=0, **more) -> WatchUpdate:
    places = [ShardPosition(shard_id=shard_id, position=position)] if position else []
    return WatchUpdate(shard_id=shard_id, positions=places, **more)


@pytest.mark.parametrize("positions", [{}, {1: 1}, {3: 7, 1: 12, SHARD_ID_MAX: POSITION_MAX}])
def test_a_token_says_the_positions_it_was_made_of(positions):
    assert parse_token(token_of(positions)) == positions


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "1",
        "1:",
        ":1",
        "1:2,",
        ",",
        "1:2 ",
        "1:-2",
        "1:+2",
        "1:2:3",
        "1:1_0",
        "1:\uff12",
        "0:5",
        "1:0",
        f"{SHARD_ID_MAX + 1}:1",
        f"1:{POSITION_MAX + 1}",
        "1:" + "9" * 5_000,
        "1:2,1:3",
    ],
)
def test_a_malformed_token_is_refused(token):
    with pytest.raises(InvalidRequest, match="token"):
        parse_token(token)


def test_tokens_move_with_each_change_and_name_no_shard_within_its_snapshot():
    place = _Place({}, lambda _: True)
    changes = [
        *place.changes(update(1, reset=True)),
        *place.changes(update(2, reset=True)),
        *place.changes(update(1, items=[topic_item("a")])),
        *place.changes(update(1, 20, snapshot_complete=True)),
        *place.changes(update(1, 23, events=[created(21, "b"), deleted(23, "b")])),
        *place.changes(update(2, items=[topic_item("c")])),
        *place.changes(update(2, 9, snapshot_complete=True)),
    ]
    assert [(change.kind, change.name, change.token) for change in changes] == [
        (ChangeKind.PRESENT, "a", ""),
        (ChangeKind.SNAPSHOT_COMPLETE, "", "1:20"),
        (ChangeKind.CREATED, "b", "1:21"),
        (ChangeKind.DELETED, "b", "1:23"),
        (ChangeKind.PRESENT, "c", "1:23"),
        (ChangeKind.SNAPSHOT_COMPLETE, "", "1:23,2:9"),
    ]
    assert place.in_snapshot == set()


def test_a_reset_is_published_and_removes_the_shard_from_the_token():
    place = _Place({1: 20, 2: 9}, lambda _: True)
    changes = place.changes(update(1, reset=True))
    assert changes == [Change(ChangeKind.RESET, "2:9", 1)]
    assert place.in_snapshot == {1}


def test_a_repeated_event_is_published_once():
    place = _Place({1: 20}, lambda _: True)
    changes = place.changes(update(1, 22, events=[created(20, "a"), created(22, "b")]))
    assert [change.position for change in changes] == [22]
    assert place.changes(update(1, 22, events=[created(22, "b")])) == []


def test_a_position_alone_is_progress():
    place = _Place({1: 20, 2: 9}, lambda _: True)
    places = [ShardPosition(shard_id=1, position=25), ShardPosition(shard_id=2, position=9)]
    assert place.changes(WatchUpdate(positions=places)) == [Change(ChangeKind.PROGRESS, "1:25,2:9")]
    assert place.changes(WatchUpdate(positions=places)) == []


def test_assignments_come_and_go():
    assigned = TopicAssigned(
        topic_id="t", unit="p1", name="x-partition-1", epoch=4, broker_id="b", session_id="s"
    )
    unassigned = TopicUnassigned(topic_id="t", unit="p1", name="x-partition-1", epoch=4)
    came = happened(Event(position=1, topic_assigned=assigned), 1, "1:1")
    went = happened(Event(position=2, topic_unassigned=unassigned), 1, "1:2")
    objects: WatchedObjects[Assignment] = WatchedObjects()

    objects.apply(came)
    assert objects.by_name() == {
        "x-partition-1": Assignment("x-partition-1", "t", "p1", 4, "b", "s")
    }
    objects.apply(went)
    assert len(objects) == 0


def test_an_event_that_cannot_be_watched_is_left_out():
    assert happened(Event(position=1), 1, "1:1") is None


def test_the_fold_of_snapshot_and_changes_is_what_there_is():
    place = _Place({}, lambda _: True)
    objects: WatchedObjects[Topic] = WatchedObjects()
    for message in (
        update(1, reset=True),
        update(2, reset=True),
        update(1, items=[topic_item("a", key="1"), topic_item("b")]),
        update(2, items=[topic_item("c")]),
        update(1, 20, snapshot_complete=True),
        update(1, 21, events=[properties_set(21, "a", key="2")]),
        update(1, 23, events=[deleted(22, "b"), created(23, "d")]),
        update(2, reset=True),
        update(2, items=[topic_item("e")]),
        update(2, 9, snapshot_complete=True),
    ):
        for change in place.changes(message):
            objects.apply(change)

    assert sorted(objects) == ["a", "d", "e"]
    assert (objects.get("a").properties, objects.get("a").version) == ({"key": "2"}, 2)
    assert objects.get("d").created_time_ms == 23
    assert objects.get("c") is None


def test_a_fold_without_a_snapshot_ignores_what_it_does_not_know():
    place = _Place({1: 20}, lambda _: True)
    objects: WatchedObjects[Topic] = WatchedObjects()
    for change in place.changes(update(1, 22, events=[properties_set(22, "a", key="1")])):
        objects.apply(change)
    assert len(objects) == 0


def test_policies_that_are_set_or_cleared_are_told_and_count_in_the_version():
    """The client's objects do not carry policies; their version says that they have changed."""
    said = Policies(message_ttl_ms=7)
    name = "persistent://acme/orders/a"
    events = [
        Event(
            position=2,
            policy_set=PolicySet(scope="topic", name=name, policy=said.SerializeToString()),
        ),
        Event(position=3, policy_cleared=PolicyCleared(scope="topic", name=name)),
    ]
    changes = [happened(event, 1, "1:3") for event in events]
    objects = WatchedObjects[Topic]()
    before = Topic(name, "t-1", 0, {}, 4, "n-1", 1)
    objects.apply(Change(ChangeKind.PRESENT, "", 1, name, before))

    for change in changes:
        assert change is not None
        objects.apply(change)

    assert [(change.kind, change.policies) for change in changes if change] == [
        (ChangeKind.POLICIES_SET, policies_from_proto(said)),
        (ChangeKind.POLICIES_SET, NO_POLICIES),
    ]
    assert objects.get(name) == replace(before, version=6)


OLD, NEW = "persistent://a/b/old", "persistent://a/b/new"


def renamed_event(position=9) -> Event:
    event = Event(position=position, time_ms=5)
    message = event.topic_renamed
    message.name, message.new_name, message.topic_id = OLD, NEW, "t-1"
    message.partitions, message.version, message.created_time_ms = 3, 4, 2
    message.properties["team"] = "risk"
    message.namespace_id = "n-2"
    return event


def changes_of(wants, *events) -> list[Change]:
    return _Place({1: 8}, wants).changes(update(events=events))


def test_a_rename_is_a_deletion_and_a_creation_and_is_resumed_as_a_whole():
    deleted_old, created_new = changes_of(lambda _: True, renamed_event())

    assert (deleted_old.kind, deleted_old.name) == (ChangeKind.DELETED, OLD)
    assert deleted_old.token == "1:8", "whoever has only this gets both again"
    assert (created_new.kind, created_new.name, created_new.token) == (
        ChangeKind.CREATED,
        NEW,
        "1:9",
    )
    assert created_new.value == Topic(NEW, "t-1", 3, {"team": "risk"}, 4, "n-2", 2)
    assert (created_new.position, created_new.time_ms) == (9, 5)


@pytest.mark.parametrize(("name", "kind"), [(OLD, ChangeKind.DELETED), (NEW, ChangeKind.CREATED)])
def test_a_watch_of_one_name_has_its_half_of_a_rename(name, kind):
    (change,) = changes_of(name.__eq__, renamed_event())
    assert (change.kind, change.name, change.token) == (kind, name, "1:9")


def test_the_fold_of_a_rename_has_the_topic_under_its_new_name():
    objects: WatchedObjects[Topic] = WatchedObjects()
    for change in changes_of(lambda _: True, created(8, OLD), renamed_event()):
        objects.apply(change)
    assert list(objects) == [NEW]
    known = objects.get(NEW)
    assert known is not None
    assert known.topic_id == "t-1"


def test_a_name_that_another_shard_got_since_is_not_taken_away():
    """Shards are followed each at its own pace."""
    objects: WatchedObjects[Topic] = WatchedObjects()
    topic = Topic(NEW, "t-1", 0, {}, 1, "n", 0)
    objects.apply(Change(ChangeKind.PRESENT, "", 1, NEW, replace(topic, topic_id="t-0")))
    objects.apply(Change(ChangeKind.CREATED, "", 2, NEW, topic))
    objects.apply(Change(ChangeKind.DELETED, "", 1, NEW))
    assert objects.get(NEW) == topic
    objects.apply(Change(ChangeKind.DELETED, "", 2, NEW))
    assert not len(objects)
