"""Adds renames of topics to a generated history, with the events that leaders record."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.write import FORMER_NAME_REST_MS
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import events_pb2 as e
from shards.domain.topic import RenameTopic, Topic, TopicState, decide, evolve
from shards.wire.event import decode_event, encode_decided
from tests.support.spark.histories import HOUR_MS, MINUTE_MS, History

_TOPIC_EVENTS = (
    "topic_created",
    "topic_properties_set",
    "topic_partitions_grown",
    "topic_renamed",
    "policy_set",
    "policy_cleared",
)


def rename_topic(history: History, name: str, new_name: str, grace_ms: int = HOUR_MS) -> bool:
    """Rename a topic that is there; return False if its home refuses."""
    topic = topic_called(history, name)
    namespace = parse_topic(new_name).namespace_text
    order = RenameTopic(
        parse_topic(name),
        topic.topic_id,
        parse_topic(new_name),
        history.ids[namespace],
        history.now_ms,
        grace_ms,
    )
    decision = decide(topic, order)
    if isinstance(decision, Rejected):
        return False
    home = history.home(name)
    _point(history, new_name, topic.topic_id)
    history.unassign_all(name, "renamed")
    history.open_gate(home, "namespace", namespace)
    if history.home_of_name(name) == home:
        _point(history, name, topic.topic_id)
    packed = encode_decided(decision.events, command_id=b"", outcome=b"", time_ms=history.now_ms)
    (stored,) = e.DecidedCommand.FromString(packed).events
    history.add(home, by_command=True, topic_renamed=stored.topic_renamed)
    history.ids[new_name] = history.ids.pop(name)
    after = evolve(topic, decision.events[0])
    assert after is not None
    history.former_names[topic.topic_id] = after.former_names
    return True


def is_free(history: History, name: str) -> bool:
    """Return whether no topic has the name, and none had it so lately that it leads there."""
    return name not in history.ids and not any(
        each.name == name and history.now_ms < each.until_ms + FORMER_NAME_REST_MS
        for former in history.former_names.values()
        for each in former
    )


def topic_called(history: History, name: str) -> Topic:
    """Return the state of a topic that is there, folded from the logs of all shards."""
    topic_id = history.ids[name]
    told = [event for log in history.logs.values() for event in log]
    state: TopicState = None
    for event in sorted(told, key=lambda event: event.time_ms):
        kind = event.WhichOneof("payload")
        if kind not in _TOPIC_EVENTS:
            continue
        payload = getattr(event, kind)
        about = payload.object_id if kind.startswith("policy") else payload.topic_id
        is_named = state is not None and not about and payload.name == state.name
        if about == topic_id or is_named:
            changed = decode_event(event)
            state = evolve(state, changed)  # type: ignore[arg-type]
    assert state is not None, f"{name} was never created"
    return state


def history_of_renames(between: Callable[[History], None] = lambda _: None) -> History:
    """Return a history of renames alone: ``tell_renames``."""
    history = History()
    history.start_broker("broker-of-names")
    tell_renames(history, "broker-of-names", lambda: between(history))
    return history


def name_at(history: History, shard_id: int, path: str) -> str:
    """Return the name of a topic, ``path`` and a number, whose slot the shard has."""
    names = (f"persistent://{path}-{number}" for number in count())
    return next(name for name in names if history.home_of_name(name) == shard_id)


def tell_renames(
    history: History, broker_id: str, between: Callable[[], None] = lambda: None
) -> None:
    """Tell of topics that get names of their own shard and of others, some of them again; of former
    names that somebody else gets, and of renamed topics that are deleted.

    ``between`` is called between the steps: slots may move there.
    """
    history.create_tenant("names")
    for namespace in ("names/first", "names/second"):
        history.create_namespace(namespace)
    _tell_a_long_life(history, broker_id, between)
    _tell_short_lives(history, broker_id, between)


def _tell_a_long_life(history: History, broker_id: str, between: Callable[[], None]) -> None:
    """A topic gets a name of its shard, one of another shard, and its second name back; its first
    one is another topic's by then."""
    home, other = history.shard_ids[:2]
    first, second = (name_at(history, home, f"names/first/{each}") for each in ("one", "two"))
    third = name_at(history, other, "names/second/three")
    topic_id = history.create_topic(first, partitions=2, team="names")
    for unit in ("p0", "p1"):
        history.assign(first, broker_id, unit)
    _set_policies(history, first, 1)
    rename_topic(history, first, second)
    history.assign(second, broker_id, "p0")
    between()
    rename_topic(history, second, third)
    _set_policies(history, third, 2)
    _set_properties(history, third, team="others")
    history.grow_topic(third, 3)
    history.assign(third, broker_id, "p2")
    between()
    history.wait(2 * HOUR_MS)
    history.create_topic(first)
    history.assign(first, broker_id)
    _set_properties(history, first, team="newer")
    between()
    assert rename_topic(history, third, second)
    history.assign(second, broker_id, "p0")
    history.clear_policies("topic", second, 3)
    assert history.ids[second] == topic_id
    between()


def _tell_short_lives(history: History, broker_id: str, between: Callable[[], None]) -> None:
    """Rename topics and delete them, then create other topics of the same names, in the shards of
    the names' slots."""
    home, other, third = history.shard_ids[1], history.shard_ids[2], history.shard_ids[0]
    old = name_at(history, home, "names/second/old")
    new = name_at(history, other, "names/first/new")
    newer = name_at(history, third, "names/second/newer")
    history.create_topic(old)
    history.assign(old, broker_id)
    rename_topic(history, old, new)
    history.assign(new, broker_id)
    between()
    history.delete_topic(new)
    for name in (old, new):
        history.create_topic(name)
        history.assign(name, broker_id)
    between()
    rename_topic(history, new, newer, grace_ms=MINUTE_MS)
    history.wait(HOUR_MS)
    rename_topic(history, old, new)
    history.assign(new, broker_id)
    history.unassign(new)
    between()
    history.delete_topic(newer)
    history.create_topic(newer)
    between()


def _point(history: History, name: str, topic_id: str) -> None:
    history.free_name(name, topic_id)
    if name not in history.pointers:
        history.pointers[name] = topic_id
        pointed = e.TopicNamePointed(name=name, topic_id=topic_id)
        history.add(history.home_of_name(name), topic_name_pointed=pointed)


def _set_policies(history: History, name: str, version: int) -> None:
    said = Policies(message_ttl_ms=version * 1_000)
    history.set_policies("topic", name, version, said)


def _set_properties(history: History, name: str, **properties: str) -> None:
    said = e.TopicPropertiesSet(name=name, topic_id=history.ids[name], properties=properties)
    history.add(history.home(name), by_command=True, topic_properties_set=said)
