"""What a session has, by what was sent to it and by what its broker says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.errors import Overloaded
from protos.nextgen.v1.broker_service_pb2 import HeldMetadata, HeldObject, HeldUnit
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TOPIC,
    Item,
    Namespace,
    Topic,
)
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment, TopicRelease
from shards.sessions import session_metadata
from shards.sessions.session_metadata import Sent, SessionMetadata
from shards.sessions.session_soft_state import SessionSoftState


def metadata() -> SessionMetadata:
    return SessionSoftState(BrokerRecorded(session_id="s"), 0.0).metadata


def namespace(name: str, version: int = 1) -> Item:
    value = Namespace(namespace_id=f"id-{name}", name=name, version=version)
    return Item(kind=KIND_NAMESPACE, name=name, namespace=value)


def assignment(unit: str = "", epoch: int = 1, version: int = 1) -> TopicAssignment:
    topic = Topic(topic_id="id-1", name="t", version=version)
    return TopicAssignment(topic=topic, unit=unit, epoch=epoch)


def release(unit: str = "", epoch: int = 1, new_epoch: int = 0) -> TopicRelease:
    return TopicRelease(topic_id="id-1", unit=unit, epoch=epoch, new_epoch=new_epoch)


def report(*units: tuple[str, int], version: int = 1) -> HeldMetadata:
    held = HeldObject(kind=KIND_TOPIC, name="t", id="id-1", version=version)
    held.units.extend(HeldUnit(unit=unit, epoch=epoch) for unit, epoch in units)
    return HeldMetadata(objects=[held], complete=True)


def test_a_topic_is_had_until_its_last_unit_is_released() -> None:
    one = metadata()
    topic = one.note_assigned(assignment("p0"))
    assert one.note_assigned(assignment("p1")) is topic

    assert one.note_released(release("p0")) is None
    assert one.note_released(release("p1")) is topic
    assert list(one) == []


_UNITS = st.sampled_from(["", "p0", "p1", "p2"])
_CHANGES = st.tuples(st.integers(0, 2), _UNITS, st.one_of(st.none(), st.integers(1, 3)))


@given(st.lists(_CHANGES, max_size=40))
def test_topics_that_share_the_map_of_their_units_do_not_change_each_others(
    changes: list[tuple[int, str, int | None]],
) -> None:
    """Of some topics units are noted, with an epoch, and dropped."""
    session = SessionSoftState(BrokerRecorded(session_id="s"), 0.0)
    topics = [Sent(session, KIND_TOPIC, f"t-{number}", f"id-{number}", 1) for number in range(3)]
    expected: list[dict[str, int]] = [{}, {}, {}]

    for number, unit, epoch in changes:
        if epoch is not None:
            topics[number].note_unit(unit, epoch)
            expected[number][unit] = epoch
        elif unit in expected[number]:
            topics[number].drop_unit(unit)
            del expected[number][unit]
        assert [topic.units for topic in topics] == expected


def test_topics_with_one_unit_have_no_map_of_their_own() -> None:
    session = SessionSoftState(BrokerRecorded(session_id="s"), 0.0)
    one, other = (Sent(session, KIND_TOPIC, name, name, 1) for name in ("t-1", "t-2"))
    one.note_unit("p0", 1)
    one.note_unit("p1", 1)
    other.note_unit("p0", 1)

    one.drop_unit("p1")

    assert one.units is other.units


def test_a_unit_of_a_topic_that_was_forgotten_and_comes_again_counts_once() -> None:
    one = metadata()
    topic = one.note_assigned(assignment("p0"))
    assert topic is not None
    one.forget(topic)
    assert one.units == 1

    one.note_assigned(assignment("p0", epoch=2))

    assert one.units == 1
    one.note_released(release("p0", epoch=2))
    assert one.units == 0


def test_a_release_of_an_earlier_epoch_takes_nothing() -> None:
    one = metadata()
    topic = one.note_assigned(assignment(epoch=3))

    assert one.note_released(release(epoch=2)) is None
    assert list(one) == [topic]


@pytest.mark.parametrize(("epoch", "is_had"), [(3, False), (4, False), (5, True)])
def test_an_assignment_that_comes_after_the_release_of_its_epoch_is_not_had(
    epoch: int, is_had: bool
) -> None:
    one = metadata()
    one.note_assigned(assignment(epoch=3))
    one.note_released(release(epoch=3, new_epoch=4))

    assert (one.note_assigned(assignment(epoch=epoch)) is not None) is is_had


def test_released_units_remembered_max_are_known_and_one_more_drops_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_metadata, "RELEASED_UNITS_REMEMBERED_MAX", 2)
    one = metadata()

    for unit in ("p0", "p1", "p2"):
        one.note_released(release(unit))

    assert one.note_assigned(assignment("p1")) is None
    assert one.note_assigned(assignment("p0")) is not None


def test_the_highest_version_that_was_sent_counts() -> None:
    one = metadata()
    topic = one.note_assigned(assignment("p0", version=5))
    one.note_assigned(assignment("p1", version=3))

    assert topic is not None
    assert topic.version == 5


def test_a_report_adds_what_this_leader_does_not_know_and_changes_nothing_that_it_does() -> None:
    one = metadata()
    one.awaits_report = True
    topic = one.note_assigned(assignment("p0", epoch=4, version=7))
    one.note_released(release("p2", epoch=9))

    learned = one.take_report(report(("p0", 3), ("p1", 1), ("p2", 9), version=6))

    assert learned == []
    assert topic is not None
    assert (topic.version, topic.units) == (7, {"p0": 4, "p1": 1})
    assert not one.awaits_report


def test_a_report_of_released_units_alone_teaches_nothing() -> None:
    one = metadata()
    one.note_released(release("p0", epoch=9))

    assert one.take_report(report(("p0", 9))) == []
    assert list(one) == []


def test_a_report_of_a_parent_that_was_sent_again_changes_nothing() -> None:
    one = metadata()
    sent, _ = one.note_parent(namespace("a/b", version=5))
    held = HeldObject(kind=KIND_NAMESPACE, name="a/b", id="id-a/b", version=4)

    assert one.take_report(HeldMetadata(objects=[held])) == []
    assert list(one) == [sent]


def test_an_object_of_an_unknown_kind_in_a_report_is_left_out() -> None:
    one = metadata()
    held = HeldObject(name="a", id="b", version=1)

    assert one.take_report(HeldMetadata(objects=[held])) == []


def test_session_metadata_max_is_reached_and_one_more_forgets_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_metadata, "SESSION_METADATA_MAX", 2)
    one = metadata()
    assert one.has_parent_room(["a/a", "a/b"])
    for name in ("a/a", "a/b"):
        one.note_parent(namespace(name))

    assert not one.has_parent_room(["a/c"])
    with pytest.raises(Overloaded):
        one.note_parent(namespace("a/c"))
    with pytest.raises(Overloaded):
        one.take_report(
            HeldMetadata(objects=[HeldObject(kind=KIND_NAMESPACE, name="a/c", id="c", version=1)])
        )

    assert [one.has_parent(name) for name in ("a/a", "a/b", "a/c")] == [True, True, False]
    assert one.has_parent_room(["a/b"]), "another namespace of a name that is there takes no room"


def test_a_parent_whose_removal_waits_is_not_had() -> None:
    one = metadata()
    sent, _ = one.note_parent(namespace("a/b"))
    sent.is_gone = True

    assert not one.has_parent("a/b")
    again, _ = one.note_parent(namespace("a/b"))
    one.forget(sent)
    assert one.has_parent("a/b")
    assert list(one) == [again]
