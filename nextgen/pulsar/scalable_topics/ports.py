"""What the sessions of scalable topics need of the cluster. The client library implements it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1.layouts_pb2 import ScalableTopic


@dataclass(frozen=True, slots=True)
class KnownLayout:
    """A layout as of some moment. ``topic`` is shared by all who watch it: never change it.

    ``owners`` has the URLs of the brokers that serve segments, by segment id. Segments that nobody
    serves are left out.
    """

    topic: ScalableTopic
    owners: Mapping[int, str]


class WatchedLayout(Protocol):
    """A place at the layout of one topic. Every place is to be closed."""

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
