"""All clients of a broker, counted: by IP address, by role, and by the tenants that they use.

A client without a role counts by its IP address. Whoever counts gets a ``Claim``, and MUST release
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from weakref import WeakValueDictionary

from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.client_info import ClientInfo
from brokers.service.client_limits.rate_limiter import RateLimiter
from nextgen.kernel.governance.client_limits import (
    NO_BROKER_LIMITS,
    BrokerLimits,
    Rate,
    TenantLimits,
)


class Use(StrEnum):
    """What clients are counted for. Values are labels of a metric."""

    CONNECTION = "connection"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    SUBSCRIPTION = "subscription"
    SUBSCRIBE = "subscribe"
    """A SUBSCRIBE too soon after others of the same consumer."""


class Claim:
    """What a client takes of a bound, until it is released. A repetition changes nothing."""

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None] | None = None) -> None:
        self._give_back = give_back

    def release(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class TenantUse:
    """What the clients of one tenant's topics use of this broker."""

    __slots__ = ("__weakref__", "_clients", "consumers", "dispatch", "name", "producers", "publish")

    def __init__(self, name: str) -> None:
        self.name = name
        self.producers = 0
        self.consumers = 0
        self.publish: RateLimiter | None = None
        self.dispatch: RateLimiter | None = None
        self._clients: Counter[str] = Counter()
        """Producers and consumers by the address of their connection."""

    @property
    def connections(self) -> int:
        return len(self._clients)

    def check(self, use: Use, limits: TenantLimits, client: ClientInfo) -> None:
        """Raise ``Refusal`` if one more would be too many."""
        if use is Use.PRODUCER and 0 < limits.producers <= self.producers:
            raise Refusal(
                ServerError.PRODUCER_BUSY,
                f"tenant {self.name} reached max producers limit at this broker: "
                f"{limits.producers}",
            )
        if use is Use.CONSUMER and 0 < limits.consumers <= self.consumers:
            raise Refusal(
                ServerError.CONSUMER_BUSY,
                f"tenant {self.name} reached max consumers limit at this broker: "
                f"{limits.consumers}",
            )
        if 0 < limits.connections <= self.connections and client.address not in self._clients:
            raise Refusal(
                ServerError.NOT_ALLOWED,
                f"tenant {self.name} reached the maximum number of connections at this broker: "
                f"{limits.connections}",
            )

    def count(self, use: Use, client: ClientInfo, change: int) -> None:
        if use is Use.PRODUCER:
            self.producers += change
        else:
            self.consumers += change
        self._clients[client.address] += change
        if not self._clients[client.address]:
            del self._clients[client.address]

    def use_limits(self, limits: TenantLimits, on_wait: tuple[Callable[[], None], ...]) -> None:
        """Keep all topics of the tenant to these rates together."""
        self.publish = changed_limiter(self.publish, limits.publish, on_wait=on_wait[0])
        self.dispatch = changed_limiter(self.dispatch, limits.dispatch, on_wait=on_wait[1])


class BrokerClients:
    """``limits`` returns the broker's settings that are in force."""

    def __init__(self, limits: Callable[[], BrokerLimits] = lambda: NO_BROKER_LIMITS) -> None:
        self._limits = limits
        self._connections = 0
        self._addresses: Counter[str] = Counter()
        self._roles: dict[Use, Counter[str]] = {
            use: Counter() for use in (Use.CONNECTION, Use.PRODUCER, Use.CONSUMER)
        }
        self._tenants: WeakValueDictionary[str, TenantUse] = WeakValueDictionary()
        self.refused: Counter[Use] = Counter()
        """Clients that were refused because of a limit."""
        self.publish_waits = 0
        """Times that a connection was not read because of a rate."""
        self.dispatch_waits = 0
        """Times that a subscription waited because of a rate."""

    def __repr__(self) -> str:
        return f"<BrokerClients connections={self._connections} tenants={len(self._tenants)}>"

    def connect(self, host: str) -> Claim:
        """Count a connection from an IP address.

        Raises:
            Refusal: NotAllowedError: too many are open, or too many from this address.
        """
        limits = self._limits()
        if 0 < limits.connections <= self._connections:
            raise self.refusal(
                Use.CONNECTION,
                ServerError.NOT_ALLOWED,
                f"Reached the maximum number of connections: {limits.connections}",
            )
        if 0 < limits.address_connections <= self._addresses[host]:
            raise self.refusal(
                Use.CONNECTION,
                ServerError.NOT_ALLOWED,
                f"Reached the maximum number of connections on address {host}: "
                f"{limits.address_connections}",
            )
        self._count_connection(host, 1)
        return Claim(lambda: self._count_connection(host, -1))

    def admit(self, client: ClientInfo) -> Claim:
        """Count a connection whose client is known.

        Raises:
            Refusal: NotAllowedError: the client's role has too many.
        """
        return self._of_role(
            Use.CONNECTION, self._limits().role_connections, ServerError.NOT_ALLOWED, client
        )

    def claim(self, use: Use, tenant: TenantUse, limits: TenantLimits, client: ClientInfo) -> Claim:
        """Count a producer or a consumer of a tenant's topic.

        Raises:
            Refusal: ProducerBusy or ConsumerBusy: the tenant or the client's role has too many.
                NotAllowedError: the tenant is used by too many connections.
        """
        try:
            tenant.check(use, limits, client)
        except Refusal:
            self.refused[use] += 1
            raise
        of_role = self._claim_of_role(use, client)
        tenant.count(use, client, 1)

        def give_back() -> None:
            of_role.release()
            tenant.count(use, client, -1)

        return Claim(give_back)

    def tenant(self, name: str) -> TenantUse:
        """Return what a tenant uses. It is remembered as long as somebody has it."""
        found = self._tenants.get(name)
        if found is None:
            found = self._tenants[name] = TenantUse(name)
        return found

    def refusal(self, use: Use, code: ServerError, message: str) -> Refusal:
        """Return a refusal, and count it."""
        self.refused[use] += 1
        return Refusal(code, message)

    def publisher_waits(self) -> None:
        self.publish_waits += 1

    def subscription_waits(self) -> None:
        self.dispatch_waits += 1

    def _claim_of_role(self, use: Use, client: ClientInfo) -> Claim:
        limits = self._limits()
        if use is Use.PRODUCER:
            return self._of_role(use, limits.role_producers, ServerError.PRODUCER_BUSY, client)
        return self._of_role(use, limits.role_consumers, ServerError.CONSUMER_BUSY, client)

    def _of_role(self, use: Use, most: int, code: ServerError, client: ClientInfo) -> Claim:
        counts = self._roles[use]
        # A role may look like an address, so the two are kept apart.
        key = f"role {client.role}" if client.role else f"address {client.host}"
        if 0 < most <= counts[key]:
            message = f"{key} reached the maximum number of {use.value}s at this broker: {most}"
            raise self.refusal(use, code, message)
        counts[key] += 1
        return Claim(lambda: _less(counts, key))

    def _count_connection(self, host: str, change: int) -> None:
        self._connections += change
        self._addresses[host] += change
        if not self._addresses[host]:
            del self._addresses[host]


def changed_limiter(
    limiter: RateLimiter | None,
    rate: Rate,
    *,
    published: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0),
    on_wait: Callable[[], None],
) -> RateLimiter | None:
    """Return the limiter of ``rate``: ``limiter`` if there is one; None if nothing is bounded."""
    if not rate:
        if limiter is not None:
            limiter.close()
        return None
    if limiter is None:
        return RateLimiter(rate, published=published, on_wait=on_wait)
    limiter.change(rate)
    return limiter


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
