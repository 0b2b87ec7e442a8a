"""Assembles the Pulsar side of a broker: storage, topics, the port where clients connect."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from brokers.adapters.pulsar.connection import BrokerConnection
from brokers.adapters.pulsar.directory import HeldTopicDirectory
from brokers.adapters.pulsar.requests import Front
from brokers.domain.session import BrokerSession
from brokers.domain.storage_policy import StoragePolicy
from brokers.ports.directory import OwnersDirectory
from brokers.ports.ledger import LedgerStore
from brokers.ports.session import Clock, DrainedUnit
from brokers.ports.shadows import ShadowLedgers
from brokers.service.client_limits.broker_clients import BrokerClients
from brokers.service.feeds.source_sessions import SourceSessions
from brokers.service.topics.drained_units import DrainedUnits
from brokers.service.topics.open_topics import Topics
from brokers.service.topics.unit import TopicDependencies
from brokers.service.topics.unit_ledgers import UnitLedgers
from brokers.service.topics.upkeep import Upkeep
from brokers.service.traffic import Latency, Traffic
from nextgen.kernel.governance.client_limits import (
    NO_BROKER_LIMITS,
    BrokerLimits,
    TopicLimits,
)
from nextgen.kernel.limits.pulsar import PULSAR_CONNECTIONS_MAX, PULSAR_KEEP_ALIVE_MS
from nextgen.pulsar.metadata_commands import MetadataCommands
from nextgen.pulsar.scalable_topics.consumer_session import ConsumerSessions
from nextgen.pulsar.scalable_topics.layout_session import LayoutWatches
from nextgen.pulsar.scalable_topics.namespace_session import NamespaceWatches
from nextgen.pulsar.scalable_topics.ports import (
    ScalableTopicLists,
    ScalableTopics,
)
from nextgen.pulsar.scalable_topics.session import ScalableServices
from nextgen.pulsar.server import PulsarServer
from nextgen.pulsar.topic_lists.listed import ListedTopics
from nextgen.pulsar.topic_lists.ports import TopicLists
from nextgen.pulsar.topic_lists.session import TopicWatches
from nextgen.pulsar.topic_lists.settings import DEFAULT_TOPIC_LISTS, TopicListSettings
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authorization.authorizer import Authorizer
from nextgen.runtime.security.process_tls import ClientTls
from nextgen.tasks.background import cancel_and_wait, keep

_NAME_TOKEN_BYTES = 6
_PURPOSE = "the broker's Pulsar clients"


@dataclass(frozen=True, slots=True)
class Identity:
    """The broker's id and the addresses for its clients."""

    broker_id: str
    broker_url: str


class PulsarFront:
    """Serves Pulsar clients. ``start`` it, then ``stop`` it once."""

    def __init__(
        self,
        *,
        identity: Identity,
        session: Callable[[], BrokerSession],
        directory: OwnersDirectory,
        persistent: LedgerStore,
        volatile: LedgerStore,
        policy: StoragePolicy,
        clock: Clock,
        shadows: ShadowLedgers | None = None,
        topic_lists: TopicListSettings = DEFAULT_TOPIC_LISTS,
        lists: TopicLists | None = None,
        scalable_lists: ScalableTopicLists | None = None,
        layouts: ScalableTopics | None = None,
        consumers: ConsumerSessions | None = None,
        wall_clock: Callable[[], int] | None = None,
        connections_max: int = PULSAR_CONNECTIONS_MAX,
        keep_alive_ms: int = PULSAR_KEEP_ALIVE_MS,
        report_drained: Callable[[Sequence[DrainedUnit]], None] = lambda _: None,
        authenticator: Authenticator | None = None,
        authorizer: Authorizer | None = None,
        broker_limits: Callable[[], BrokerLimits] = lambda: NO_BROKER_LIMITS,
    ) -> None:
        self.authorizer = authorizer
        """Who decides what clients may do; None: they may do everything."""
        self._upkeep: asyncio.Task[None] | None = None
        self.traffic, self.append_latency = Traffic(), Latency()
        self.clients = BrokerClients(broker_limits)
        self.topics = Topics(
            broker_id=identity.broker_id,
            broker_url=identity.broker_url,
            holding=lambda: session().holding,
            directory=directory,
            ledgers=UnitLedgers(persistent, volatile, shadows),
            dependencies=TopicDependencies(
                policy=policy,
                traffic=self.traffic,
                append_latency=self.append_latency,
                make_name=_name_maker(identity.broker_id),
                now_ms=wall_clock or wall_clock_ms,
                clients=self.clients,
                on_drained=lambda unit, subscription: self.drained.note(unit, subscription),
            ),
        )
        self.upkeep = Upkeep(self.topics, clock)
        self.sources = SourceSessions(self.topics)
        self.drained = DrainedUnits(lambda: session().holding, report_drained)
        """Reports of drained units, which has to know of connections to managers."""
        held = _held_topics(identity, session, self.topics, directory)
        if lists is None:
            lists = ListedTopics(held)
            topic_lists = replace(topic_lists, serves_watchers=False)
        commands = MetadataCommands(held, lists, topic_lists)
        self.topic_watches = TopicWatches(lists, topic_lists, commands.permits)
        self.scalable: ScalableServices | None = None
        if layouts is not None:
            partitions = partial(held.partitions, create=False)
            self.scalable = ScalableServices(
                LayoutWatches(layouts, partitions, identity.broker_url),
                consumers,
                NamespaceWatches(scalable_lists, commands.permits) if scalable_lists else None,
            )
        parts = self.topics, commands, self.topic_watches, self.scalable
        self.shared = Front(*parts, authenticator, authorizer, self.clients)
        self._server = PulsarServer(
            lambda keep_alive: BrokerConnection(keep_alive, self.shared),
            connections_max=connections_max,
            keep_alive_ms=keep_alive_ms,
        )

    @property
    def connection_count(self) -> int:
        return self._server.connection_count

    @property
    def unfinished_bytes(self) -> int:
        return self._server.unfinished_bytes

    @property
    def dropped_connections(self) -> int:
        return self._server.dropped_connections

    def use_topic_limits(self, limits: TopicLimits) -> None:
        """Set what clients may use of a topic where no policy says otherwise."""
        self.topics.use_limits(limits)

    def connections(self) -> Iterator[BrokerConnection]:
        return (cast(BrokerConnection, connection) for connection in self._server.connections())

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port.

        Raises:
            RefusesToStart: The port is taken.
        """
        bound = await self._server.start(host, port, _PURPOSE)
        self._begin_upkeep()
        return bound

    async def start_tls(self, host: str, port: int, tls: ClientTls) -> int:
        """Listen for ``pulsar+ssl``, beside the plain port or alone; else as ``start``."""
        bound = await self._server.start_tls(host, port, _PURPOSE, tls)
        self._begin_upkeep()
        return bound

    def _begin_upkeep(self) -> None:
        if self._upkeep is None:
            self._upkeep = keep("topic_upkeep", self.upkeep.run)

    async def stop(self, grace_ms: int) -> None:
        """Redirect the clients, close every topic, and then the connections."""
        if self._upkeep is not None:
            await cancel_and_wait(self._upkeep)
        await self.topics.close()
        await self._server.stop(grace_ms)


def _held_topics(
    identity: Identity,
    session: Callable[[], BrokerSession],
    topics: Topics,
    beyond: OwnersDirectory,
) -> HeldTopicDirectory:
    return HeldTopicDirectory(
        broker_id=identity.broker_id,
        broker_url=identity.broker_url,
        session=session,
        topics=topics,
        beyond=beyond,
    )


def wall_clock_ms() -> int:
    """Milliseconds since 1970: the clock of publish times and delayed delivery."""
    return time.time_ns() // 1_000_000


def _name_maker(broker_id: str) -> Callable[[], str]:
    """Return a maker of producers' names, which are unique over processes."""
    prefix = f"{broker_id}-{secrets.token_hex(_NAME_TOKEN_BYTES)}"
    numbers = itertools.count()
    return lambda: f"{prefix}-{next(numbers)}"
