"""Lookups over HTTP, for clients with an ``http://`` service URL and for admin tools.

/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}                which broker serves it?
/admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions            how many has it?
/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema[/{version}]     which schema?

They are answered from the same directory as the Pulsar port.
"""

from __future__ import annotations

from discovery.adapters.resources.schema_content import schema_content
from discovery.adapters.rest.answer import TEXT, Answer, content, text
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import BOOLEAN, TEXT_VALUE, Route
from discovery.ports import Directory
from nextgen.kernel.errors import InvalidRequest, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.pulsar.metadata_commands import TopicDirectory
from nextgen.pulsar.policies.whole_policies import WHOLE_BUNDLE
from nextgen.pulsar.service_urls import urls_of_listener

_LISTENER_HEADER = "X-Pulsar-ListenerName"
_SCHEMA_VERSION_BYTES = 8
_TOPIC = "/{tenant}/{namespace}/{topic}"
_SCHEMA = f"/admin/v2/schemas{_TOPIC}/schema"
_LOOKUP = f"/lookup/v2/topic/{{topic-domain}}{_TOPIC}"


class Lookups:
    """Answers the requests that clients send before they connect to a broker."""

    def __init__(
        self, topics: TopicDirectory, cluster: Directory, *, has_https: bool = False
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._has_https = has_https

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                _LOOKUP,
                self._lookup,
                "The broker that serves a topic",
                Action.LOOK_UP,
                query={"authoritative": BOOLEAN, "listenerName": TEXT_VALUE},
                answers={200: "The broker's addresses."},
                is_lookup=True,
            ),
            Route(
                "GET",
                f"{_LOOKUP}/bundle",
                self._bundle,
                "The bundle of a topic: the same for all",
                Action.LOOK_UP,
                answers={200: "The only bundle."},
                media_type=TEXT,
            ),
            Route(
                "GET",
                f"/admin/v2/{{domain}}{_TOPIC}/partitions",
                self._partitions,
                "The number of a topic's partitions",
                Action.READ,
                query={"checkAllowAutoCreation": BOOLEAN},
                answers={200: "The number; 0 of a topic without partitions."},
            ),
            *(
                Route(
                    "GET",
                    path,
                    self._schema,
                    f"{which} schema of a topic",
                    Action.READ,
                    answers={200: "The schema."},
                )
                for path, which in (
                    (_SCHEMA, "The latest"),
                    (f"{_SCHEMA}/{{version}}", "One version of the"),
                )
            ),
        ]

    async def _lookup(self, request: RestRequest) -> Answer:
        name = request.topic()
        try:
            url = (await self._topics.locate(name, create=False)).broker_url
        except Refused as error:
            # A topic with partitions is served by none, and clients only want a connection.
            if error.code != RejectionCode.PARTITIONED:
                raise
            url = self._topics.any_broker_url(name.text) or ""
        if not url:
            raise Unavailable(f"there is no broker that speaks Pulsar for {name.text}")
        named = request.query.get("listenerName") or request.headers.get(_LISTENER_HEADER, "")
        urls = urls_of_listener(url, named)
        broker_id, http_url, https_url = self._addresses(url)
        # Without brokerUrlTls and brokerUrlSsl, empty or not, C++ clients crash.
        return content(
            {
                "brokerId": broker_id,
                "brokerUrl": urls.plain,
                "brokerUrlTls": urls.tls,
                "httpUrl": http_url,
                "httpUrlTls": https_url,
                "nativeUrl": urls.plain,
                "brokerUrlSsl": urls.tls,
            }
        )

    async def _bundle(self, request: RestRequest) -> Answer:
        request.topic()
        return text(WHOLE_BUNDLE)

    async def _partitions(self, request: RestRequest) -> Answer:
        create = request.flag("checkAllowAutoCreation")
        return content(
            {"partitions": await self._topics.partitions(request.topic(), create=create)}
        )

    async def _schema(self, request: RestRequest) -> Answer:
        name = request.topic()
        version = request.parts.get("version")
        stored = await self._topics.schema(
            name, None if version is None else _schema_version(version)
        )
        if stored is None:
            raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} has no such schema")
        version_number = int.from_bytes(stored.version, "big")
        return content(schema_content(version_number, stored.kind, stored.data, stored.properties))

    def _addresses(self, broker_url: str) -> tuple[str, str, str]:
        """Return the id, the HTTP and the HTTPS URL of the broker with this Pulsar URL; each "" if
        it has none. A broker serves HTTPS if this process does."""
        for broker in self._cluster.view.brokers.values():
            if broker.is_live and broker.endpoints.pulsar_url == broker_url:
                http = broker.endpoints.http
                if not http:
                    return broker.broker_id, "", ""
                if self._has_https:
                    return broker.broker_id, "", f"https://{http}"
                return broker.broker_id, f"http://{http}", ""
        return "", "", ""


def _schema_version(version: str) -> bytes:
    """Return the eight bytes of a version's number.

    Raises:
        InvalidRequest: It is no such number.
    """
    if not (version.isascii() and version.isdigit() and len(version) < 20):
        raise InvalidRequest(f"schema version {shown(version)} is not a number")
    try:
        return int(version).to_bytes(_SCHEMA_VERSION_BYTES, "big")
    except OverflowError as error:
        raise InvalidRequest(f"schema version {shown(version)} is beyond 64 bits") from error
