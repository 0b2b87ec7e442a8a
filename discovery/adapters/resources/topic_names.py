"""The topics of a namespace over HTTP, however many: the answer is streamed.

/admin/v2/namespaces/{tenant}/{namespace}/topics      those of one domain, or of all
/admin/v2/{domain}/{tenant}/{namespace}               those of the domain
/admin/v2/{domain}/{tenant}/{namespace}/partitioned   those that have partitions
/admin/v2/scalable/{tenant}/{namespace}               scalable ones
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from itertools import chain, islice
from typing import Protocol

from discovery.adapters.rest.answer import RestFailure, Stream, json_list, streamed
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import BOOLEAN, TEXT_VALUE, Route
from discovery.service.admin.ordered_walk import Entry
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.routing.names import PARTITION_SUFFIX, Domain, NamespaceName
from nextgen.kernel.routing.property_filter import (
    EVERY_TOPIC,
    InvalidFilter,
    PropertyFilter,
    parse_filter,
)
from nextgen.kernel.routing.system_topics import is_system_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb

_DOMAINS_LISTED = {
    "PERSISTENT": Domain.PERSISTENT.value,
    "NON_PERSISTENT": Domain.NON_PERSISTENT.value,
    "ALL": "",
}

_SCALABLE = f"{Domain.TOPIC.value}://"

NamesOf = Callable[[Entry], Iterable[str]]


class Listing(Protocol):
    """The ``ListingService``."""

    def stream_topics(
        self, namespace: NamespaceName, *, domain: str, prefix: str = "", names_only: bool = True
    ) -> AsyncGenerator[Sequence[Entry]]: ...


class Namespaces(Protocol):
    """The ``InventoryService``."""

    async def get_namespace(
        self, request: pb.GetObjectRequest, timeout_ms: int
    ) -> pb.GetObjectResponse: ...


class TopicNames:
    """Lists names. An absent namespace is answered with 404."""

    def __init__(self, listing: Listing, namespaces: Namespaces) -> None:
        self._listing = listing
        self._namespaces = namespaces

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                "/admin/v2/namespaces/{tenant}/{namespace}/topics",
                self._of_namespace,
                "The topics of a namespace, and partitions of those that have some",
                Action.LIST,
                query={
                    "mode": {"type": "string", "enum": list(_DOMAINS_LISTED)},
                    "includeSystemTopic": BOOLEAN,
                },
                answers={200: "Their names, ascending; partitions in the order of their numbers."},
            ),
            Route(
                "GET",
                "/admin/v2/{domain}/{tenant}/{namespace}",
                self._of_domain,
                "The topics of one domain, and partitions of those that have some",
                Action.LIST,
                query={
                    "bundle": TEXT_VALUE,
                    "includeSystemTopic": BOOLEAN,
                    "properties": TEXT_VALUE,
                },
                answers={200: "Their names, ascending; partitions in the order of their numbers."},
            ),
            Route(
                "GET",
                "/admin/v2/{domain}/{tenant}/{namespace}/partitioned",
                self._partitioned,
                "The topics of one domain that have partitions",
                Action.LIST,
                query={"includeSystemTopic": BOOLEAN},
                answers={200: "Their names, ascending."},
            ),
            Route(
                "GET",
                "/admin/v2/scalable/{tenant}/{namespace}",
                self._scalable,
                "The scalable topics that have all of these properties",
                Action.LIST,
                query={"property": {"type": "array", "items": {"type": "string"}}},
                answers={200: "Their names, ascending."},
            ),
        ]

    async def _of_namespace(self, request: RestRequest) -> Stream:
        mode = request.query.get("mode", "PERSISTENT").upper()
        if mode not in _DOMAINS_LISTED:
            known = ", ".join(_DOMAINS_LISTED)
            raise InvalidRequest(f"mode {shown(mode)} does not exist, known are {known}")
        return await self._stream(request, _DOMAINS_LISTED[mode], _units)

    async def _of_domain(self, request: RestRequest) -> Stream:
        text = request.query.get("properties", "")
        wanted = _filter_of(text.split(",") if text else ())
        return await self._stream(request, request.parts["domain"], _units, wanted)

    async def _partitioned(self, request: RestRequest) -> Stream:
        return await self._stream(request, request.parts["domain"], _if_partitioned)

    async def _scalable(self, request: RestRequest) -> Stream:
        wanted = _filter_of(request.values.get("property", ()))
        return await self._stream(request, Domain.TOPIC.value, _name, wanted)

    async def _stream(
        self,
        request: RestRequest,
        domain: str,
        names_of: NamesOf,
        properties: PropertyFilter = EVERY_TOPIC,
    ) -> Stream:
        namespace = request.namespace()
        wanted = pb.GetObjectRequest(name=namespace.text)
        found = await self._namespaces.get_namespace(wanted, request.timeout_ms)
        if not found.item.HasField("namespace"):
            raise Refused(RejectionCode.NOT_FOUND, f"namespace {namespace.text} does not exist")
        with_system_topics = request.flag("includeSystemTopic")
        batches = self._listing.stream_topics(namespace, domain=domain, names_only=not properties)
        if properties:
            batches = _with_properties(batches, properties)
        names = _names(batches, names_of, with_system_topics=with_system_topics)
        return await streamed(json_list(names))


async def _names(
    batches: AsyncGenerator[Sequence[Entry]], names_of: NamesOf, *, with_system_topics: bool
) -> AsyncGenerator[list[str]]:
    async with aclosing(batches):
        async for batch in batches:
            listed = (
                entry for entry in batch if with_system_topics or not is_system_topic(entry[0])
            )
            # A single topic may have thousands of partitions.
            names = chain.from_iterable(map(names_of, listed))
            while piece := list(islice(names, PAGE_ITEMS_MAX)):
                yield piece


async def _with_properties(
    batches: AsyncGenerator[Sequence[Entry]], properties: PropertyFilter
) -> AsyncGenerator[Sequence[Entry]]:
    """Yield the topics that have all of these properties."""
    async with aclosing(batches):
        async for batch in batches:
            yield [
                entry
                for entry in batch
                if entry[2] is not None and properties.matches(entry[2].topic.properties)
            ]


def _filter_of(texts: Iterable[str]) -> PropertyFilter:
    """Return the filter in ``key=value`` texts.

    Raises:
        RestFailure: 412, it is none.
    """
    try:
        return parse_filter(texts)
    except InvalidFilter as error:
        raise RestFailure(412, str(error)) from error


def _name(entry: Entry) -> Iterable[str]:
    return (entry[0],)


def _units(entry: Entry) -> Iterable[str]:
    name, partitions, _ = entry
    if name.startswith(_SCALABLE):
        return ()  # It has routes of its own, and no partitions.
    if not partitions:
        return (name,)
    return (f"{name}{PARTITION_SUFFIX}{number}" for number in range(partitions))


def _if_partitioned(entry: Entry) -> Iterable[str]:
    name, partitions, _ = entry
    return (name,) if partitions else ()
