"""What the sessions of scalable topics need of the cluster. The client library implements it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from nextgen.kernel.routing.names import NamespaceName, TopicName
from nextgen.kernel.routing.property_filter import PropertyFilter
from nextgen.pulsar.topic_lists.ports import TopicListChange
from protos.nextgen.v1.layouts_pb2 import ScalableTopic, TopicSegment
from protos.pulsar.PulsarApi_pb2 import ScalableTopicDAG


@dataclass(frozen=True, slots=True)
class KnownLayout:
    """A layout as of some moment. ``topic`` is shared by all who watch it: never change it.

    ``owners`` has the URLs of the brokers that serve segments, by segment id. Segments that nobody
    serves are left out.
    """

    topic: ScalableTopic
    owners: Mapping[int, str]
    messages: dict[str, ScalableTopicDAG] = field(default_factory=dict, compare=False, repr=False)
    """What was made of it for clients, by the URL of the node: the same for all watchers."""


class WatchedLayout(Protocol):
    """One watcher's place at the layout of a topic. The watcher MUST close it."""

    def layout(self) -> KnownLayout | None:
        """Return the present layout, None if there is no such topic."""

    async def next_change(self) -> None:
        """Return once anything differs from what ``layout`` returned last: subscriptions too."""

    async def next_graph_change(self) -> None:
        """Return once the segments or their owners differ from what ``layout`` returned last, or
        the topic has come or gone."""

    def close(self) -> None:
        """Give the place up. Closing again does nothing."""


class ScalableTopics(Protocol):
    """The layouts of the cluster. Every method raises ``MetadataError`` kinds only."""

    async def watch(self, name: TopicName, *, create: bool, may_be_absent: bool) -> WatchedLayout:
        """Return a place at the layout of ``name``, which is in the domain ``topic``.

        With ``create`` an absent topic is created if its namespace allows it. With
        ``may_be_absent`` the place of a topic that is not there has no layout until it comes.

        Raises:
            Refused: ``NOT_FOUND``: there is no such topic, and none was created.
            Unavailable: Its shard cannot be asked at the moment.
        """


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A consumer that a client registers. ``type`` is ``stream`` or ``checkpoint``.

    ``takes_buckets``: it can share a segment with others, by entry buckets.
    """

    topic: TopicName
    subscription: str
    consumer: str
    type: str
    takes_buckets: bool


@dataclass(frozen=True, slots=True)
class ConsumerAssignment:
    """The segments of one consumer as of a layout's epoch: each, and whether others share it.

    Segments are shared by all who know the layout: never change one.
    """

    epoch: int
    segments: tuple[tuple[TopicSegment, bool], ...] = ()


class JoinedConsumer(Protocol):
    """A consumer that is registered, and attached to this node. Close it with its connection."""

    def on_replaced(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once if the consumer's client came back by another connection."""

    async def next_assignment(self) -> ConsumerAssignment:
        """Return the present assignment, then each one that differs from what was returned last.

        Failures that may pass are waited for.

        Raises:
            Refused: ``NOT_FOUND``: the topic was deleted. Else: it may not be registered again.
            MetadataError: It was replaced, leaves, or is closed.
        """

    async def leave(self) -> None:
        """End the registration, and close.

        Raises:
            MetadataError: It may not have ended; it does after a grace.
        """

    def close(self) -> None:
        """Give the consumer up: it stays registered for a grace. Closing again does nothing."""


class ScalableConsumers(Protocol):
    """The registered consumers of the cluster. Every method raises ``MetadataError`` kinds only."""

    async def join(self, request: JoinRequest) -> JoinedConsumer:
        """Register a consumer, or attach one that is registered, for a client of this node.

        Raises:
            Refused: There is no such topic, or the rules forbid it.
            MetadataError: It may be registered: then it is removed after a grace.
        """


class NamesAtOneMoment(Protocol):
    """The names of a list, sorted. They never change."""

    @property
    def hash(self) -> str:
        """See ``topics_hash``."""

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all names, with one more for each."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[str]: ...


class WatchedNames(Protocol):
    """One watcher's place at the names of a namespace's scalable topics. It MUST be closed."""

    @property
    def hash(self) -> str:
        """The hash of the list as this watcher has it."""

    def renew(self) -> NamesAtOneMoment:
        """Return the list as it is: the next change is the one behind it."""

    async def wait_change(self) -> None:
        """Return once there are changes to take, or the list ended."""

    async def take_changes(self) -> TopicListChange:
        """Return all changes behind those that this watcher has as one, which may be empty.

        Its receiver removes what is deleted and then adds what is created: a topic that was deleted
        and created again may be in both. A watcher that is far behind gets the net difference.

        Raises:
            MetadataError: The list is watched no longer. ``watch_scalable`` goes on ``after`` this
                place; after ``Overloaded`` there is no memory for that.
        """

    def close(self) -> None:
        """Give the place up. Closing again does nothing."""


class ScalableTopicLists(Protocol):
    """The names of scalable topics, by their properties. Raises ``MetadataError`` kinds only."""

    async def watch_scalable(
        self,
        namespace: NamespaceName,
        properties: PropertyFilter,
        after: WatchedNames | None = None,
    ) -> WatchedNames:
        """Begin to watch the scalable topics of a namespace that have all of ``properties``.

        ``after`` is a place at the same list, which ended: the new one begins where it was, so that
        its first change is the difference. The caller closes both.

        Raises:
            Overloaded: There is no memory left for another watched list.
        """
