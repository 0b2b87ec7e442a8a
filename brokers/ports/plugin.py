"""The port by which a sidecar commands the plug-in of a stock Apache Pulsar broker.

The plug-in answers lookups and closes topics. Neither side decides where topics are: both carry out
what the broker manager assigned. Calls reach the plug-in in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from brokers.domain.holding import Assignment, Release
from nextgen.kernel.governance.broker_load import BrokerLoad
from nextgen.pulsar.metadata_commands import Located


@dataclass(frozen=True, slots=True)
class PluginGreeting:
    """The stock broker behind a connection."""

    broker: str
    """Its own id in its Pulsar cluster, ``host:port`` of its web service."""
    urls: str
    """Where Pulsar clients reach it, as in ``service_urls``."""
    version: str
    """Of Apache Pulsar."""
    web: str = ""
    """Where its Admin REST is: ``http://host:port``, ``https://host:port``, or both with a comma
    between them."""


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A client, or the broker itself, looks up a topic that is not assigned to this broker."""

    number: int
    topic: str


@dataclass(frozen=True, slots=True)
class Ping:
    """The plug-in asks for a ``pong`` with this number behind everything that was sent before."""

    number: int


@dataclass(frozen=True, slots=True)
class Synced:
    """The plug-in has carried out everything up to the ``sync`` with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class LoadMeasured:
    """The load of the stock broker, without ``units`` and ``measured_at_ms``."""

    load: BrokerLoad = field(default_factory=BrokerLoad)


@dataclass(frozen=True, slots=True)
class PluginAlive:
    """The broker's process runs. Sent often enough that its absence means something."""


@dataclass(frozen=True, slots=True)
class OpenTopic:
    """A topic that is open at the stock broker."""

    topic: str
    is_owned: bool
    """It belongs to this broker, as its namespace is placed now: by topic or by bundle."""
    bundle_owner: str
    """The broker that has the topic's bundle, as in ``PluginGreeting.broker``; "" if none has."""


@dataclass(frozen=True, slots=True)
class OpenTopics:
    """A part of the answer to ``list_open``."""

    number: int
    by_topic: bool
    """Whether the broker has heard that the namespace is handed over."""
    topics: tuple[OpenTopic, ...]
    is_last: bool


@dataclass(frozen=True, slots=True)
class ForeignClosed:
    """The answer to ``close_foreign``: numbers of topics."""

    number: int
    closed: int
    kept: int
    """Topics that are assigned to this broker by now, or are not open."""
    failed: int
    """Topics that stay open, because the plug-in could not tell their clients the owner."""


@dataclass(frozen=True, slots=True)
class TopicsReported:
    """What has changed among the broker's open topics that are placed one by one: those that are in
    use by now, those that are not, and those that are closed."""

    is_first: bool
    """What was reported before is void."""
    is_last: bool
    """All that has changed is known by now."""
    used: Sequence[str] = ()
    unused: Sequence[str] = ()
    closed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AbsentReported:
    """Topics that are assigned to this broker, that Pulsar does not have, and that it does not
    create on demand; or that have partitions in Pulsar."""

    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeletedReported:
    """Topics, without partitions, that Pulsar has deleted."""

    topics: Sequence[str]


FromPlugin = (
    LookupRequest
    | Ping
    | Synced
    | LoadMeasured
    | PluginAlive
    | TopicsReported
    | AbsentReported
    | DeletedReported
    | OpenTopics
    | ForeignClosed
)


class PluginFault(StrEnum):
    """What may be wrong between a sidecar and its broker; a label of the metric that counts it."""

    UNREACHABLE = "unreachable"
    """Nobody listens at the socket: the broker does not run, or has no plug-in."""
    SECOND_SIDECAR = "second_sidecar"
    """Another sidecar commands the broker."""
    OTHER_USER = "other_user"
    """A process of another user listens at the socket."""
    OTHER_PROTOCOL = "other_protocol"
    """Plug-in and sidecar are of different releases."""
    OTHER_RELEASE = "other_release"
    """The plug-in was built for another release of Apache Pulsar than the broker's."""
    MALFORMED = "malformed"
    """The plug-in sent what is no message."""
    OVERSIZED = "oversized"
    """The plug-in sent more than a message has."""
    REFUSED = "refused"
    """The plug-in ended the connection; its message says why."""
    CLOSED = "closed"
    """The connection ended, mostly with the broker's process."""
    SILENT = "silent"
    """The broker stands still."""
    UNCONFIRMED = "unconfirmed"
    """The plug-in does not confirm what it was sent."""
    NOT_RELEASED = "not_released"
    """The broker has a topic open that is not assigned to it."""
    ABSENT_TOPIC = "absent_topic"
    """A topic is assigned to the broker that Pulsar does not have and does not create, or that has
    partitions in Pulsar."""
    UNKNOWN_TOPIC = "unknown_topic"
    """A topic is looked up that the cluster does not have and does not create; Pulsar may have
    it."""
    NODE_ID_TAKEN = "node_id_taken"
    """Another broker has a session under this one's node id."""


class PluginLost(Exception):
    """The broker or its plug-in is gone, was silent for too long, or does not keep the protocol."""

    def __init__(self, message: str, fault: PluginFault = PluginFault.MALFORMED) -> None:
        super().__init__(message)
        self.fault = fault


class PluginConnection(Protocol):
    """An open connection to the plug-in of one stock broker."""

    @property
    def greeting(self) -> PluginGreeting: ...

    async def receive(self) -> FromPlugin:
        """Return the next message.

        Raises:
            PluginLost: The connection is over.
        """
        ...

    def session(self, session_id: str, epoch: int, ttl_ms: int) -> None:
        """Begin a session, or continue it. Assignments of any other session are void.

        The plug-in refuses all topics if neither ``session`` nor ``alive`` comes for ``ttl_ms``.
        """
        ...

    def alive(self) -> None:
        """Tell the plug-in that the broker manager was heard from a moment ago."""
        ...

    def prepare(self, assignment: Assignment) -> None:
        """Tell the plug-in of an assignment that will come, while another broker has the topic."""
        ...

    def assign(self, assignment: Assignment) -> None: ...

    def release(self, release: Release) -> None: ...

    def sync(self, number: int) -> None:
        """Request a ``Synced`` with this number behind everything that was sent before."""
        ...

    def pong(self, number: int) -> None:
        """Answer the ping of this number."""
        ...

    def located(self, number: int, located: Located) -> None:
        """Answer the lookup request of this number."""
        ...

    def refused(self, number: int, code: str, message: str, *, is_final: bool) -> None:
        """Answer a lookup that has no broker; ``is_final``: repeating it is of no use."""
        ...

    def list_open(self, number: int, namespace: str) -> None:
        """Ask for the topics of a namespace that are open, in ``OpenTopics`` of this number."""
        ...

    def close_foreign(self, number: int, topics: Sequence[str]) -> None:
        """Have topics closed that are open and belong to others, and their clients sent there.

        Answered with ``ForeignClosed`` of this number.
        """
        ...

    def close(self) -> None: ...


class PluginDialer(Protocol):
    """Connects to the plug-in of the broker on this machine."""

    async def connect(self) -> PluginConnection:
        """Return the connection when the broker runs and has sent its greeting, however long that
        takes."""
        ...
