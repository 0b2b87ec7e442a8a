"""Nodes fold the events of scalable topics as the shards do."""

from hypothesis import given

from nextgen.client.scalable_topics.fold import LAYOUT_EVENTS, fold_events
from nextgen.kernel.events.decider import Accepted, fold
from protos.nextgen.v1.events_pb2 import DecidedCommand, Event, LayoutChanged
from protos.nextgen.v1.layouts_pb2 import ScalableTopic
from shards.domain.scalable.decider import decide
from shards.domain.scalable.state import evolve
from shards.wire.event import encode_decided
from shards.wire.scalable import SCALABLE_EVENTS, scalable_topic_message
from tests.support.shards.events import RESTORED, SCALABLE_HISTORY
from tests.support.shards.scalable import NAME, histories


def stored(events):
    packed = encode_decided(events, command_id=b"", outcome=b"", time_ms=1)
    return DecidedCommand.FromString(packed).events


@given(histories())
def test_a_node_folds_every_history_to_what_the_shard_has(history):
    state, message = None, None
    for command in history:
        decision = decide(state, command)
        if not isinstance(decision, Accepted):
            continue
        before = None if message is None else message.SerializeToString()
        after = fold_events(message, stored(decision.events))
        assert message is None or message.SerializeToString() == before, "it is shared"
        state, message = fold(evolve, state, decision.events), after
        assert message == (None if state is None else scalable_topic_message(state))


def test_every_event_of_a_topic_that_exists_has_a_fold():
    # Loads are no part of a topic, and watchers of topics do not get them.
    assert {*SCALABLE_EVENTS} - {"segment_loads_recorded"} == LAYOUT_EVENTS


def test_an_event_of_a_later_release_changes_the_version_alone():
    topic = ScalableTopic(name=NAME, version=4, epoch=2)

    assert fold_events(topic, [Event()]) == ScalableTopic(name=NAME, version=5, epoch=2)


def test_events_about_a_topic_that_is_not_there_are_passed_over():
    assert fold_events(None, [Event(layout_changed=LayoutChanged(name=NAME, epoch=7))]) is None


def test_a_restored_layout_replaces_whatever_was_known():
    state = None
    restored = [each for each in SCALABLE_HISTORY if each.name == RESTORED]
    for domain_event in restored[1:]:
        state = evolve(state, domain_event)
    message = ScalableTopic(name=RESTORED, version=4, epoch=2)

    message = fold_events(message, stored(restored[1:]))

    assert message == scalable_topic_message(state)
