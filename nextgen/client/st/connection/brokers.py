"""Which broker serves a topic, and a connection to it."""

from __future__ import annotations

from nextgen.client.st.connection.link import Link
from nextgen.client.st.connection.pool import LinkPool
from nextgen.client.st.errors import ConnectionFailed, InvalidSettings, ScalableTopicError
from nextgen.client.st.settings import Address, ClientSettings, parse_address
from nextgen.client.st.wire import error_of
from nextgen.kernel.limits.scalable import ST_LOOKUP_REDIRECTS_MAX
from protos.pulsar import PulsarApi_pb2 as pulsar


class Brokers:
    """Finds brokers by LOOKUP, at the addresses of the service URL in turn."""

    def __init__(self, settings: ClientSettings, pool: LinkPool) -> None:
        self._settings = settings
        self._addresses = settings.addresses()
        self._turn = 0
        self._is_proxied = False
        self.pool = pool

    async def any(self) -> Link:
        """Return a connection to one of the service URL's addresses.

        Raises:
            ConnectionFailed: None answers.
        """
        error = ConnectionFailed("the service URL has no address")
        for _ in self._addresses:
            try:
                return await self.pool.get(self._addresses[self._turn % len(self._addresses)])
            except ConnectionFailed as failure:
                error = failure
                self._turn += 1
        raise error

    async def serving(self, topic: str) -> Link:
        """Return a connection to the broker that serves a topic, or answers for it.

        Raises:
            ScalableTopicError: There is none, or the server refuses.
        """
        return await self.pool.get(*await self._find(topic))

    async def at(self, url: str, *, is_own: bool = False) -> Link:
        """Return a connection to a broker whose URL the server named.

        Raises:
            ConnectionFailed: It does not answer, or the URL is none.
        """
        place = self._place_of(self._address(url))
        return await (self.pool.get_own(*place) if is_own else self.pool.get(*place))

    def chosen(self, url: str, url_tls: str) -> str:
        """Return which of a broker's two URLs is for this client; empty if the server named none
        for it."""
        return url_tls if self._is_tls else url

    async def own_serving(self, topic: str) -> Link:
        """Do as ``serving``, with a connection that nobody else has."""
        return await self.pool.get_own(*await self._find(topic))

    async def _find(self, topic: str) -> tuple[Address, str]:
        link, is_authoritative = await self.any(), False
        for _ in range(ST_LOOKUP_REDIRECTS_MAX + 1):
            answer = await self._ask(link, topic, is_authoritative=is_authoritative)
            url = self.chosen(answer.brokerServiceUrl, answer.brokerServiceUrlTls)
            if answer.response == pulsar.CommandLookupTopicResponse.Failed or not url:
                raise error_of(answer.error, answer.message or f"no broker serves {topic}")
            address = self._address(url)
            if answer.response == pulsar.CommandLookupTopicResponse.Connect:
                self._is_proxied = answer.proxy_through_service_url
                return self._place_of(address)
            link, is_authoritative = await self.pool.get(address), answer.authoritative
        raise ConnectionFailed(
            f"the lookup of {topic} was redirected {ST_LOOKUP_REDIRECTS_MAX} times"
        )

    async def _ask(
        self, link: Link, topic: str, *, is_authoritative: bool
    ) -> pulsar.CommandLookupTopicResponse:
        lookup = pulsar.CommandLookupTopic(topic=topic, authoritative=is_authoritative)
        if self._settings.listener_name:
            lookup.advertised_listener_name = self._settings.listener_name
        answer = await link.ask(
            pulsar.BaseCommand(type=pulsar.BaseCommand.LOOKUP, lookupTopic=lookup),
            self._settings.operation_timeout_ms,
        )
        if answer.type != pulsar.BaseCommand.LOOKUP_RESPONSE:
            raise refusal_in(answer)
        return answer.lookupTopicResponse

    @property
    def _is_tls(self) -> bool:
        return self._addresses[0].is_tls

    def _place_of(self, broker: Address) -> tuple[Address, str]:
        """Return the address to connect to, and the broker behind it if that is a proxy."""
        if not self._is_proxied:
            return broker, ""
        return self._addresses[self._turn % len(self._addresses)], broker.host_and_port

    def _address(self, url: str) -> Address:
        try:
            address = parse_address(url)
        except InvalidSettings as error:
            raise ConnectionFailed(f"the server named a broker by no URL: {error}") from error
        if address.is_tls is not self._is_tls:
            # A server must not talk the client out of TLS, or a token would be readable.
            raise ConnectionFailed(f"{address} has not the scheme of the service URL")
        return address


def refusal_in(answer: pulsar.BaseCommand) -> ScalableTopicError:
    """Return the error in an answer that is not the expected one."""
    if answer.type == pulsar.BaseCommand.ERROR:
        return error_of(answer.error.error, answer.error.message)
    return ConnectionFailed(f"the server answered {pulsar.BaseCommand.Type.Name(answer.type)}")
