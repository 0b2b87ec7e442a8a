"""A rename of a topic: what is decided by the topic and the two names alone."""

import pytest

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.write import FORMER_NAMES_MAX, RENAME_GRACE_MS_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from shards.domain.renames.names import (
    FormerName,
    OldName,
    TopicNameFreed,
    TopicNamePointed,
    TopicPointer,
    TopicRenamed,
    evolve_pointer,
    former_names_of,
)
from shards.domain.topic import DeleteTopic, RenameTopic, Topic, TopicDeleted, decide, evolve

NOW = 1_700_000_000_000
OLD = "persistent://acme/orders/old"
NEW = "persistent://globex/lab/new"


def topic(name=OLD, *former, **changes):
    return Topic("topic-1", name, 3, 5, "ns-1", NOW - 9, (("a", "b"),), b"p", 2, former, **changes)


def rename(name=OLD, new_name=NEW, *, grace_ms=1_000, topic_id="topic-1", now=NOW):
    return RenameTopic(parse_topic(name), topic_id, parse_topic(new_name), "ns-2", now, grace_ms)


def renamed(state, command):
    decision = decide(state, command)
    assert isinstance(decision, Accepted), decision
    (event,) = decision.events
    return event


def test_a_renamed_topic_is_the_same_but_for_its_name_and_namespace():
    before = topic()

    event = renamed(before, rename())
    after = evolve(before, event)

    assert event == TopicRenamed(
        OLD,
        "topic-1",
        NEW,
        "ns-2",
        (OldName(OLD, NOW + 1_000),),
        (),
        3,
        (("a", "b"),),
        6,
        NOW - 9,
        b"p",
        2,
    )
    assert after == Topic(
        "topic-1",
        NEW,
        3,
        6,
        "ns-2",
        NOW - 9,
        (("a", "b"),),
        b"p",
        2,
        (OldName(OLD, NOW + 1_000),),
    )
    assert after.is_renamed
    assert not before.is_renamed


def test_a_former_name_leads_to_the_topic_until_its_time_is_over():
    before = topic(OLD, OldName(f"{OLD}-a", NOW), OldName(f"{OLD}-b", NOW + 1))

    event = renamed(before, rename())

    assert event.dropped_names == (f"{OLD}-a",)
    assert event.former_names == (OldName(f"{OLD}-b", NOW + 1), OldName(OLD, NOW + 1_000))
    assert former_names_of(event) == [
        FormerName(f"{OLD}-b", "topic-1", NEW, NOW + 1),
        FormerName(OLD, "topic-1", NEW, NOW + 1_000),
    ]


def test_a_topic_gets_a_former_name_back_once_that_does_not_lead_to_it():
    event = renamed(topic(NEW, OldName(OLD, NOW)), rename(NEW, OLD))

    assert event.dropped_names == (OLD,)
    assert event.former_names == (OldName(NEW, NOW + 1_000),)


def test_without_grace_the_old_name_is_known_and_leads_nowhere():
    event = renamed(topic(), rename(grace_ms=0))

    assert event.former_names == (OldName(OLD, NOW),)
    assert renamed(evolve(topic(), event), rename(NEW, f"{NEW}-2")).dropped_names == (OLD,)


@pytest.mark.parametrize(
    ("state", "command", "code"),
    [
        (None, rename(), RejectionCode.NOT_FOUND),
        (topic(), rename(topic_id="topic-2"), RejectionCode.NOT_FOUND),
        (topic(), rename(new_name=f"{NEW}-partition-1"), RejectionCode.INVALID_NAME),
        (topic(), rename(new_name="non-persistent://a/b/c"), RejectionCode.NOT_ALLOWED),
        (topic(), rename(new_name="topic://a/b/c"), RejectionCode.NOT_ALLOWED),
        (topic("topic://a/b/c"), rename("topic://a/b/c"), RejectionCode.NOT_ALLOWED),
        (topic(), rename(new_name="persistent://a/b/__change_events"), RejectionCode.NOT_ALLOWED),
        (
            topic("persistent://a/b/__change_events"),
            rename("persistent://a/b/__change_events"),
            RejectionCode.NOT_ALLOWED,
        ),
        (topic(), rename(grace_ms=-1), RejectionCode.LIMIT_EXCEEDED),
        (topic(), rename(grace_ms=RENAME_GRACE_MS_MAX + 1), RejectionCode.LIMIT_EXCEEDED),
        (topic(), rename(new_name=OLD), RejectionCode.ALREADY_EXISTS),
        (topic(OLD, OldName(NEW, NOW + 1)), rename(), RejectionCode.ALREADY_EXISTS),
    ],
    ids=[
        "no topic",
        "another topic",
        "onto a partition",
        "into another domain",
        "onto a scalable name",
        "of a scalable topic",
        "onto a system name",
        "of a system topic",
        "less than no grace",
        "too long a grace",
        "onto itself",
        "in a circle",
    ],
)
def test_what_is_refused_by_the_topic_and_the_names(state, command, code):
    decision = decide(state, command)

    assert isinstance(decision, Rejected)
    assert decision.code is code


def test_a_shadow_keeps_its_name():
    shadow = Topic(
        "topic-1", OLD, 0, 1, "ns-1", NOW, ((SHADOW_SOURCE_PROPERTY, "persistent://a/b/source"),)
    )

    decision = decide(shadow, rename())

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_ALLOWED


def test_the_longest_grace_is_allowed():
    event = renamed(topic(), rename(grace_ms=RENAME_GRACE_MS_MAX))

    assert event.former_names[-1].until_ms == NOW + RENAME_GRACE_MS_MAX


def test_former_names_max_lead_to_one_topic_and_not_one_more():
    former = tuple(OldName(f"{OLD}-{number}", NOW + 1) for number in range(FORMER_NAMES_MAX - 1))

    most = evolve(topic(OLD, *former), renamed(topic(OLD, *former), rename()))
    one_more = decide(most, rename(NEW, f"{NEW}-2"))
    later = decide(most, rename(NEW, f"{NEW}-2", now=NOW + 1))

    assert len(most.former_names) == FORMER_NAMES_MAX
    assert isinstance(one_more, Rejected)
    assert one_more.code is RejectionCode.LIMIT_EXCEEDED
    assert isinstance(later, Accepted)


def test_a_deletion_says_which_former_names_go_with_the_topic():
    state = topic(NEW, OldName(f"{OLD}-a", NOW - 1), OldName(OLD, NOW + 1))

    decision = decide(state, DeleteTopic(NEW, "topic-1"))

    assert decision == Accepted(
        (TopicDeleted(NEW, "topic-1", 3, former_names=(f"{OLD}-a", OLD)),),
    )


def test_a_pointer_is_the_latest_that_was_set_until_the_name_is_free():
    first = evolve_pointer(None, TopicNamePointed(NEW, "topic-1"))
    second = evolve_pointer(first, TopicNamePointed(NEW, "topic-2"))

    assert first == TopicPointer(NEW, "topic-1")
    assert second == TopicPointer(NEW, "topic-2")
    assert evolve_pointer(second, TopicNameFreed(NEW, "topic-2")) is None
