"""What a topic is opened with: its unit, and the parts that all topics of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from brokers.domain.holding import UnitKey
from brokers.domain.storage_policy import StoragePolicy
from brokers.service.client_limits.broker_clients import BrokerClients
from brokers.service.producing.producers import NameMaker
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.traffic import Latency, Traffic
from nextgen.kernel.routing.names import Domain

_SEGMENT = f"{Domain.SEGMENT.value}://"


@dataclass(frozen=True, slots=True)
class TopicUnit:
    """An open unit and its assignment."""

    name: str
    """Canonical, partition included."""
    topic_id: str
    unit: str
    epoch: int
    partition: int
    """-1 if it is not a partition."""
    is_persistent: bool

    @property
    def is_segment(self) -> bool:
        """Whether it is a segment of a scalable topic, which has not a classic topic's name."""
        return self.name.startswith(_SEGMENT)

    @property
    def key(self) -> UnitKey:
        return (self.topic_id, self.unit)


@dataclass(frozen=True, slots=True)
class TopicDependencies:
    """The parts that all topics of a broker share."""

    policy: StoragePolicy
    """The broker's policy, for fields that no tenant, namespace or topic sets."""
    traffic: Traffic
    append_latency: Latency
    make_name: NameMaker
    now_ms: Callable[[], int]
    """The wall clock of publish times and delayed delivery."""
    clients: BrokerClients = field(default_factory=BrokerClients)
    """Who uses this broker, and its tenants."""
    on_drained: Callable[[TopicUnit, Subscription], None] = lambda _unit, _subscription: None
    """Called when a durable subscription of a terminated topic has acknowledged everything."""
