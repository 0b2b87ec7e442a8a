"""A rename as watchers of one of the names see it, or of both."""

from discovery.service.watches.shown_events import shown_events, shown_items
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item

OLD, NEW = "persistent://a/b/old", "persistent://c/d/new"


def renamed() -> Event:
    event = Event(position=7, shard_id=3, time_ms=99)
    event.topic_renamed.name, event.topic_renamed.new_name = OLD, NEW
    event.topic_renamed.topic_id, event.topic_renamed.partitions = "t-1", 4
    event.topic_renamed.policies = b"secret"
    return event


def test_who_watches_the_former_name_alone_sees_that_the_topic_is_gone():
    (shown,), is_for_all = shown_events([renamed()], OLD.__eq__)

    assert not is_for_all
    assert shown.WhichOneof("payload") == "topic_deleted"
    assert (shown.topic_deleted.name, shown.topic_deleted.partitions) == (OLD, 4)
    assert (shown.position, shown.shard_id, shown.time_ms) == (7, 3, 99)
    assert NEW.encode() not in shown.SerializeToString()
    assert b"secret" not in shown.SerializeToString()


def test_who_watches_the_new_name_sees_the_rename():
    event = renamed()
    assert shown_events([event], NEW.__eq__) == ([event], True)
    assert shown_events([event], lambda _: True) == ([event], True)


def test_what_shards_keep_of_names_is_shown_to_nobody():
    pointed, freed, created = Event(), Event(), Event()
    pointed.topic_name_pointed.name = freed.topic_name_freed.name = OLD
    created.topic_created.name = OLD

    assert shown_events([pointed, created, freed], lambda _: True) == ([created], True)


def test_items_are_objects_of_their_own_names():
    topic, former, pointer = (Item(kind=KIND_TOPIC, name=OLD) for _ in range(3))
    topic.topic.name, former.topic.name = OLD, NEW
    pointer.pointer.topic_id = "t-1"
    tenant = Item(name="a")
    tenant.tenant.name = "a"

    assert shown_items([topic, former, pointer, tenant]) == [topic, tenant]
