"""The client library: what a program uses to manage and look up topics.

    async with Client(["127.0.0.1:7100", "127.0.0.1:7101"]) as client:
        await client.create_tenant("acme")
        location, = await client.lookup(["persistent://acme/orders/paid"])

Every call goes to whichever discovery node answers. Writes carry a command id that stays the
same over all retries, so a write whose answer was lost is carried out once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from nextgen.client.discovery.known_map import KnownMap
from nextgen.client.discovery.layout_writes import LayoutWrites
from nextgen.client.discovery.listing import Listings
from nextgen.client.discovery.lookup_stream import LookupStream
from nextgen.client.discovery.lookups import look_up
from nextgen.client.discovery.nodes import DiscoveryNodes, Response
from nextgen.client.discovery.own_writes import OwnWrites
from nextgen.client.discovery.permission_writes import PermissionWrites
from nextgen.client.discovery.shadow_topics import ShadowTopics
from nextgen.client.discovery.shared_creates import SharedCreates
from nextgen.client.discovery.topic_list import TopicListChanged, watch_topic_list
from nextgen.client.discovery.watch import watch_changes, watch_shard_map
from nextgen.client.discovery.write_requests import (
    ParentRenames,
    TopicWrites,
    WriteRequest,
    deletion,
    new_command_id,
    set_properties,
    topics_in,
)
from nextgen.client.model import (
    ClusterState,
    CreatedTopic,
    Namespace,
    NewTopic,
    ObjectPolicies,
    ScalableTopic,
    Tenant,
    Topic,
    TopicLocation,
    TopicNamesPage,
    Written,
    cluster_of,
    created_topic_of,
    location_of,
    namespace_of,
    scalable_topic_of,
    tenant_of,
    topic_of,
    written_of,
)
from nextgen.client.watch_model import Assignment, Change, ShardMap
from nextgen.client.wire.policies import policies_from_proto, policies_to_proto
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.cluster import (
    TOPICS_PER_CREATE_MAX,
)
from nextgen.kernel.routing.names import InvalidName, NamespaceName, parse_namespace, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.inventory_pb2 import Item
from protos.nextgen.v1.shard_service_pb2 import (
    CONSISTENCY_ASYNC,
    CONSISTENCY_EFFECTIVE,
    TopicMove,
    TopicSpec,
)

TIMEOUT_DEFAULT_MS = 10_000

_RETRY_PAUSE_MS = 100


class Client(TopicWrites, ParentRenames, LayoutWrites, PermissionWrites, ShadowTopics, Listings):
    """One user's connection to a cluster. Use it on one event loop; close it at the end.

    ``endpoints`` are gRPC addresses (host:port) of discovery nodes. ``timeout_ms`` bounds each
    call, retries included. With ``read_your_writes`` a ``get_…`` may be answered by any replica
    that has this client's own writes; without, it is linearizable and goes to the leader. With
    ``effective`` a write returns once every broker and discovery node concerned has applied it.
    Every method raises ``MetadataError`` kinds only: ``Refused`` when a rule forbids the command.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_ms: int = TIMEOUT_DEFAULT_MS,
        read_your_writes: bool = False,
        effective: bool = False,
    ) -> None:
        super().__init__(DiscoveryNodes(endpoints), timeout_ms)
        self._read_your_writes = read_your_writes
        self._consistency = CONSISTENCY_EFFECTIVE if effective else CONSISTENCY_ASYNC
        self._positions: dict[int, int] = {}
        self._own_writes = OwnWrites()
        self._map = KnownMap(self._read_cluster)
        self._creates = SharedCreates(self._create_batch, self._map.shard_of, timeout_ms)

    def __repr__(self) -> str:
        return f"<Client node={self._nodes.endpoint} shard_map={self._map.version}>"

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._creates.stop()
        await self._map.stop()
        await self._nodes.close()

    # Tenants ----------------------------------------------------------------------------------

    async def create_tenant(
        self, name: str, properties: Mapping[str, str] | None = None
    ) -> Written:
        """Create a tenant."""
        request = pb.CreateTenantRequest(
            command_id=new_command_id(), name=name, properties=properties or {}
        )
        return await self._write("CreateTenant", request)

    async def set_tenant_properties(
        self, name: str, properties: Mapping[str, str], *, expected_version: int = 0
    ) -> Written:
        """Replace all properties. ``expected_version`` 0 means any."""
        request = set_properties(name, properties, expected_version)
        return await self._write("SetTenantProperties", request)

    async def delete_tenant(self, name: str) -> Written:
        """Delete a tenant that has no namespaces."""
        return await self._write("DeleteTenant", deletion(name))

    async def get_tenant(self, name: str, *, min_position: int = 0) -> Tenant | None:
        """Return the tenant, None if there is none. See ``get_topic`` for ``min_position``."""
        item = await self._get("GetTenant", name, name, min_position)
        return tenant_of(item.tenant) if item.HasField("tenant") else None

    # Namespaces -------------------------------------------------------------------------------

    async def create_namespace(
        self, name: str, properties: Mapping[str, str] | None = None
    ) -> Written:
        """Create the namespace ``tenant/namespace``."""
        request = pb.CreateNamespaceRequest(
            command_id=new_command_id(), name=name, properties=properties or {}
        )
        return await self._write("CreateNamespace", request)

    async def set_namespace_properties(
        self, name: str, properties: Mapping[str, str], *, expected_version: int = 0
    ) -> Written:
        """Replace all properties. ``expected_version`` 0 means any."""
        request = set_properties(name, properties, expected_version)
        return await self._write("SetNamespaceProperties", request)

    async def delete_namespace(self, name: str) -> Written:
        """Delete a namespace that has no topics."""
        return await self._write("DeleteNamespace", deletion(name))

    async def get_namespace(self, name: str, *, min_position: int = 0) -> Namespace | None:
        """Return the namespace, None if there is none. See ``get_topic`` for ``min_position``."""
        key = _parsed(lambda: parse_namespace(name).text)
        item = await self._get("GetNamespace", name, key, min_position)
        return namespace_of(item.namespace) if item.HasField("namespace") else None

    # Topics -----------------------------------------------------------------------------------

    async def create_topics(self, topics: Sequence[NewTopic | str]) -> list[CreatedTopic]:
        """Create topics, scalable ones too, in any namespaces; each has an outcome of its own.

        More than ``TOPICS_PER_CREATE_MAX`` are sent as several requests, one after the other.
        Calls for one topic each that meet at a shard share requests, unless they are effective.
        """
        if len(topics) == 1 and self._consistency != CONSISTENCY_EFFECTIVE:
            (topic,) = topics
            return [
                await self._creates.create(
                    topic if isinstance(topic, NewTopic) else NewTopic(topic)
                )
            ]
        created: list[CreatedTopic] = []
        for start in range(0, len(topics), TOPICS_PER_CREATE_MAX):
            batch = [
                topic if isinstance(topic, NewTopic) else NewTopic(topic)
                for topic in topics[start : start + TOPICS_PER_CREATE_MAX]
            ]
            created += await self._create_batch(batch, self._timeout_ms)
        return created

    async def get_topic(self, name: str, *, min_position: int = 0) -> Topic | None:
        """Return the topic, None if there is none.

        With ``min_position``, of the topic's shard, any replica at or past it may answer.
        """
        key = _parsed(lambda: parse_topic(name).routing_key)
        item = await self._get("GetTopic", name, key, min_position)
        return topic_of(item.topic) if item.HasField("topic") else None

    async def get_scalable_topic(self, name: str, *, min_position: int = 0) -> ScalableTopic | None:
        """Return the layout of a scalable topic, None if there is none. See ``get_topic``."""
        key = _parsed(lambda: parse_topic(name).routing_key)
        item = await self._get("GetScalableTopic", name, key, min_position)
        return scalable_topic_of(item.scalable_topic) if item.HasField("scalable_topic") else None

    # Policies ---------------------------------------------------------------------------------

    async def set_policies(
        self, name: str, policies: Policies, *, expected_version: int | None = None
    ) -> Written:
        """Replace all policies of a tenant, a namespace (``tenant/namespace``) or a topic.

        Permissions are among them: to change one policy, read them and give the version that was
        read. ``grant`` and ``revoke`` do. ``NO_POLICIES`` clears them. ``expected_version`` is the
        version of the policies themselves, 0 if they were never set. Of several writes that expect
        one version, exactly one is accepted and the others are ``Refused``.
        """
        request = pb.SetPoliciesRequest(
            command_id=new_command_id(),
            name=name,
            policies=None if policies == NO_POLICIES else policies_to_proto(policies),
            expected_version=expected_version or 0,
            expects_none=expected_version == 0,
        )
        return await self._write("SetPolicies", request)

    async def get_policies(self, name: str, *, merged: bool = False) -> ObjectPolicies:
        """Return an object's policies; ``merged``: with those of its namespace and tenant."""
        request = pb.GetPoliciesRequest(name=name, merged=merged)
        response = await self._call("GetPolicies", request, pb.GetPoliciesResponse)
        policies = response.merged if merged else response.policies
        return ObjectPolicies(policies_from_proto(policies), response.version)

    # Lookup and assignment --------------------------------------------------------------------

    async def lookup(
        self,
        topics: Sequence[str],
        *,
        fresh: bool = False,
        min_epochs: Mapping[str, int] | None = None,
    ) -> list[TopicLocation]:
        """Return where each topic is served, in the same order, assigning those that are idle.

        With ``fresh`` the answer is linearizable and costs a request to each topic's shard.
        Without, it may be as old as ``LOOKUP_STALENESS_MS_MAX`` when this is called, and a later
        answer of another node may be older. A caller that a broker refused repeats the lookup with
        the refused epoch + 1 in ``min_epochs``, by topic: no cache that knows only earlier epochs
        answers it. A passing failure is retried until ``timeout_ms`` and then returned
        (``TopicLocation.retryable``).

        Raises:
            Unavailable: Among other reasons, the node's release knows neither ``fresh`` nor epochs.
                The next call goes to another node.
        """
        return await look_up(
            self._nodes,
            topics,
            timeout_ms=self._timeout_ms,
            own_writes=self._own_writes,
            fresh=fresh,
            min_epochs=min_epochs,
        )

    def lookup_stream(self) -> LookupStream:
        """Return a stream for many lookups at a time. It connects with its first lookup."""
        return LookupStream(self._nodes, self._own_writes, timeout_ms=self._timeout_ms)

    async def move_topics(
        self, moves: Mapping[str, str], *, expected_epochs: Mapping[str, int] | None = None
    ) -> list[TopicLocation]:
        """Move assigned topics to other brokers: topic → broker id, "" for any other.

        Returns the new locations in the order of ``moves``, or why a topic stayed. With its
        epoch in ``expected_epochs`` a topic moves once, however often the call is retried.
        Without, a retry of a move to any other broker may move it again.
        """
        epochs = expected_epochs or {}
        request = pb.MoveTopicsRequest(
            moves=[
                TopicMove(topic=topic, target_broker_id=broker, expected_epoch=epochs.get(topic, 0))
                for topic, broker in moves.items()
            ]
        )
        response = await self._call("MoveTopics", request, pb.MoveTopicsResponse)
        return [location_of(answer) for answer in response.answers]

    async def unload_topics(self, topics: Sequence[str]) -> list[str]:
        """Take topics and partitions from their brokers; the next lookup assigns them again.

        Returns those that were not taken away, or of which it is not known.
        """
        request = pb.UnloadTopicsRequest(topics=topics)
        response = await self._call("UnloadTopics", request, pb.UnloadTopicsResponse)
        return [outcome.name for outcome in response.outcomes if not outcome.unassigned]

    # Watches ----------------------------------------------------------------------------------

    def watch_tenants(
        self,
        *,
        prefix: str = "",
        names: Sequence[str] = (),
        resume: str = "",
        without_snapshot: bool = False,
    ) -> AsyncGenerator[Change[Tenant]]:
        """Yield the changes of tenants; see ``watch_topics``."""
        return self._watch("WatchTenants", prefix, names, resume, without_snapshot)

    def watch_namespaces(
        self,
        *,
        prefix: str = "",
        names: Sequence[str] = (),
        resume: str = "",
        without_snapshot: bool = False,
    ) -> AsyncGenerator[Change[Namespace]]:
        """Yield the changes of namespaces; see ``watch_topics``."""
        return self._watch("WatchNamespaces", prefix, names, resume, without_snapshot)

    def watch_topics(
        self,
        *,
        prefix: str = "",
        names: Sequence[str] = (),
        resume: str = "",
        without_snapshot: bool = False,
    ) -> AsyncGenerator[Change[Topic]]:
        """Yield a snapshot of all topics or some, and then every change, without end.

        ``prefix`` is the beginning of canonical names (``persistent://tenant/namespace/``);
        ``names`` are full names in any accepted form. ``resume`` is the token of the last change
        that the caller applied: the changes since then come without a snapshot.
        ``without_snapshot`` begins at the present position. Changes of one shard come in order,
        each once; those of several shards are interleaved. A node or a stream that ends is
        replaced by another without a gap. A reader that falls too far behind gets a RESET and a
        snapshot when it reads on.

        Raises:
            InvalidRequest: A name, the prefix or the token is malformed.
            PositionAhead: The token is of a future that this cluster does not have.
            MetadataError: No node has served the watch once within the client's ``timeout_ms``.
        """
        return self._watch("WatchTopics", prefix, names, resume, without_snapshot)

    def watch_topic_list(
        self, pattern: str, *, poll_ms: int = 60_000
    ) -> AsyncGenerator[TopicListChanged]:
        """Yield the persistent topics that a subscription's ``pattern`` describes, then changes.

        ``pattern`` is a regular expression for ``tenant/namespace/topic``, which begins with the
        namespace; partitioned topics are their partitions. The first change has all that there is.
        After a lost connection the next change is the difference. A discovery node of a release
        without such watches is asked each ``poll_ms`` instead.

        Raises:
            InvalidRequest: The pattern is none, or cannot be matched in linear time.
            MetadataError: No node has served the watch once within the client's ``timeout_ms``.
        """

        def read_page(namespace: NamespaceName, token: str) -> Awaitable[TopicNamesPage]:
            return self.topic_names_page(namespace.text, domain="persistent", page_token=token)

        return watch_topic_list(
            self._nodes, pattern, read_page, poll_ms=poll_ms, timeout_ms=self._timeout_ms
        )

    def watch_assignments(
        self,
        *,
        prefix: str = "",
        names: Sequence[str] = (),
        resume: str = "",
        without_snapshot: bool = False,
    ) -> AsyncGenerator[Change[Assignment]]:
        """Yield which brokers get and lose topics and partitions; see ``watch_topics``."""
        return self._watch("WatchAssignments", prefix, names, resume, without_snapshot)

    def watch_shard_map(self) -> AsyncGenerator[ShardMap]:
        """Yield the shard map with its leaders, and again whenever either changes."""
        return watch_shard_map(self._nodes, timeout_ms=self._timeout_ms)

    # The cluster ------------------------------------------------------------------------------

    async def cluster(self) -> ClusterState:
        """Return shard map, leaders, brokers and nodes as a discovery node knows them."""
        update = await self._map.state()
        return cluster_of(update, Counter(self._map.owners))

    async def counters(self) -> dict[str, int]:
        """Return the counters of the discovery node that is in use, since its start."""
        request = pb.GetCountersRequest()
        response = await self._call("GetCounters", request, pb.GetCountersResponse)
        return dict(response.counters)

    # ------------------------------------------------------------------------------------------

    def _watch(
        self, method: str, prefix: str, names: Sequence[str], resume: str, without_snapshot: bool
    ) -> AsyncGenerator[Change[Any]]:
        return watch_changes(
            self._nodes,
            method,
            prefix=prefix,
            names=names,
            resume=resume,
            without_snapshot=without_snapshot,
            timeout_ms=self._timeout_ms,
        )

    async def _create_batch(self, batch: list[NewTopic], timeout_ms: int) -> list[CreatedTopic]:
        request = pb.CreateTopicsRequest(
            command_id=new_command_id(),
            consistency=self._consistency,
            topics=[
                TopicSpec(
                    name=topic.name,
                    partitions=topic.partitions,
                    properties=topic.properties,
                    segments=topic.segments,
                )
                for topic in batch
            ],
        )
        response = await self._nodes.call(
            "CreateTopics", request, pb.CreateTopicsResponse, timeout_ms=timeout_ms
        )
        for written in response.positions:
            self._remember(written.shard_id, written.position)
        self._map.notice(response.shard_map_version)
        return [
            created_topic_of(topic.name, outcome)
            for topic, outcome in zip(batch, response.topics, strict=True)
        ]

    async def _read_cluster(self) -> ClusterUpdate:
        return await self._call("GetCluster", pb.GetClusterRequest(), ClusterUpdate)

    async def _call(self, method: str, request: Message, response_type: type[Response]) -> Response:
        return await self._nodes.call(method, request, response_type, timeout_ms=self._timeout_ms)

    async def _write(self, method: str, request: WriteRequest) -> Written:
        request.consistency = self._consistency
        response = await self._call(method, request, pb.WriteResponse)
        self._remember(response.shard_id, response.position)
        self._map.notice(response.shard_map_version)
        for topic in topics_in(method, request) if self._read_your_writes else ():
            self._map.note_found(topic.routing_key, response.shard_id)
        return written_of(response)

    async def _get(self, method: str, name: str, routing_key: str, min_position: int) -> Item:
        if not min_position and self._read_your_writes:
            min_position = await self._own_position(routing_key)
        request = pb.GetObjectRequest(name=name, min_position=min_position)
        response = await self._call(method, request, pb.GetObjectResponse)
        return response.item

    async def _own_position(self, routing_key: str) -> int:
        """Return the position this client has written to in the key's shard, 0 if none, or if the
        position would be another shard's: then the leader is read."""
        if not self._positions:
            return 0
        shard_id = await self._map.wait_shard(routing_key)
        return 0 if shard_id is None else self._positions.get(shard_id, 0)

    def _remember(self, shard_id: int, position: int) -> None:
        self._positions[shard_id] = max(position, self._positions.get(shard_id, 0))
        self._own_writes.note(shard_id, position)


def _parsed(parse: Callable[[], str]) -> str:
    try:
        return parse()
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error
