"""The version of an object follows from a snapshot's item and the events behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Kind,
)
from shards.domain.life import Life
from shards.domain.namespace import (
    Namespace,
    NamespaceCreated,
    NamespaceDeleted,
    NamespaceDeletionAborted,
    NamespaceDeletionStarted,
    NamespacePropertiesSet,
)
from shards.domain.tenant import (
    Tenant,
    TenantCreated,
    TenantDeleted,
    TenantDeletionAborted,
    TenantDeletionStarted,
    TenantPropertiesSet,
)
from shards.domain.topic import Topic, TopicCreated, TopicDeleted, TopicPropertiesSet
from shards.sessions.metadata_state import (
    MetadataState,
    change_delivery,
    id_of,
    removal_delivery,
    state_after,
    state_of,
)
from shards.wire.event import DomainEvent, encode_decided
from shards.wire.inventory import item_message

TIME_MS = 1_700_000_000_000
PROPERTIES = (("a", "b"),)
STATES = [
    (KIND_TENANT, Tenant("id", "acme", PROPERTIES, 7, Life.DELETING)),
    (KIND_NAMESPACE, Namespace("id", "acme/orders", "tenant", PROPERTIES, 7, Life.ACTIVE)),
    (KIND_TOPIC, Topic("id", "t", 4, 7, "namespace", TIME_MS, PROPERTIES)),
]


def as_read(event: DomainEvent) -> pb.Event:
    """Return an event as it comes out of a log."""
    payload = encode_decided([event], command_id=b"", outcome=b"", time_ms=TIME_MS)
    (stored,) = pb.DecidedCommand.FromString(payload).events
    stored.time_ms = TIME_MS
    return stored


@pytest.mark.parametrize(("kind", "state"), STATES)
def test_an_item_gives_the_state_that_it_was_made_of(kind: Kind, state: MetadataState) -> None:
    assert state_of(item_message(kind, state.name, state)) == state


def test_a_topic_shares_the_texts_that_its_follower_has_and_only_those() -> None:
    """A manager follows 100,000 topics: it has each name, each id and a namespace's id once."""
    name, object_id = "".join(("persistent://acme/", "orders/t")), "".join(("topic", "-id"))
    topic = Topic("".join(("topic-", "id")), "persistent://acme/orders/t", 0, 7, "n-1", TIME_MS, ())
    item = item_message(KIND_TOPIC, topic.name, topic)

    first = state_of(item, name=name, object_id=object_id)
    other = state_of(item, name="another", object_id="another")

    assert first == other == topic
    assert isinstance(first, Topic)
    assert isinstance(other, Topic)
    assert (first.name is name, first.topic_id is object_id) == (True, True)
    assert first.namespace_id is other.namespace_id


def test_an_item_without_a_value_is_an_absence() -> None:
    assert state_of(item_message(KIND_TENANT, "acme", None)) is None


@pytest.mark.parametrize(
    ("events", "versions"),
    [
        (
            [
                TenantCreated("id", "acme"),
                TenantPropertiesSet("acme", PROPERTIES),
                TenantDeletionStarted("acme"),
                TenantDeletionAborted("acme"),
                TenantDeletionStarted("acme"),
                TenantDeleted("acme", "id"),
            ],
            [1, 2, 3, 4, 5, None],
        ),
        (
            [
                NamespaceCreated("id", "acme/orders", "tenant"),
                NamespacePropertiesSet("acme/orders", PROPERTIES),
                NamespaceDeletionStarted("acme/orders"),
                NamespaceDeletionAborted("acme/orders"),
                NamespaceDeletionStarted("acme/orders"),
                NamespaceDeleted("acme/orders", "id"),
            ],
            [1, 2, 3, 4, 5, None],
        ),
        (
            [
                TopicCreated("id", "t", 0, "namespace", TIME_MS),
                TopicPropertiesSet("t", PROPERTIES),
                TopicPropertiesSet("t", ()),
                TopicDeleted("t", "id"),
            ],
            [1, 2, 3, None],
        ),
    ],
)
def test_every_change_makes_the_version_greater_by_one(
    events: list[DomainEvent], versions: list[int | None]
) -> None:
    state: MetadataState | None = None
    for event, version in zip(events, versions, strict=True):
        state = state_after(state, as_read(event))
        assert (None if state is None else state.version) == version


@given(st.integers(1, 2**40), st.integers(0, 20))
def test_the_version_goes_on_from_whatever_the_snapshot_says(start: int, changes: int) -> None:
    state: MetadataState | None = Topic("id", "t", 0, start, "namespace", TIME_MS, ())
    for number in range(changes):
        state = state_after(state, as_read(TopicPropertiesSet("t", (("n", str(number)),))))

    assert state is not None
    assert state.version == start + changes


def test_an_event_that_is_about_the_name_and_not_the_object_changes_nothing() -> None:
    gate = pb.Event(
        parent_gate_closed=pb.ParentGateClosed(
            parent_kind="namespace", parent_name="acme/orders", parent_id="id", attempt=1
        )
    )
    _, state = STATES[1]

    assert state_after(state, gate) is state
    assert state_after(None, gate) is None


def test_a_change_of_what_was_never_seen_is_a_gap() -> None:
    with pytest.raises(AssertionError, match="never created"):
        state_after(None, as_read(TopicPropertiesSet("t", ())))


@pytest.mark.parametrize(("kind", "state"), STATES)
def test_a_delivery_tells_all_of_the_object(kind: Kind, state: MetadataState) -> None:
    item = item_message(kind, state.name, state)
    value = item.WhichOneof("value")
    assert value is not None
    delivery = change_delivery(state)

    assert delivery.WhichOneof("body") == value
    assert getattr(delivery, value) == getattr(item, value)
    removed = removal_delivery(kind, state.name, id_of(state)).removed
    assert (removed.kind, removed.name, removed.id) == (kind, state.name, "id")
