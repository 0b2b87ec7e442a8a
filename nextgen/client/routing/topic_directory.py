"""What is known of topics, asked of the shards: the ``TopicDirectory`` of discovery and brokers.

    name ─┬─ exists ─────────────────────────────▶ its partitions, or where it is served
          └─ absent ─ may it be created? ─▶ namespace's policy ─▶ CreateTopics ─▶ as above

Questions that are asked at the same time share requests; the same question is asked once. Two
creators of one name, here or elsewhere, meet in its shard: the one that comes second finds the
topic there and goes on with it.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from nextgen.client.brokers.schemas import BrokerSchemas
from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.shared_questions import Answer, CarryOut, SharedQuestions
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.auto_creation import AutoCreation, auto_creation
from nextgen.kernel.governance.policies import merge
from nextgen.kernel.limits.cluster import (
    COMMAND_ID_BYTES,
    NAMES_PER_LOOKUP_MAX,
    PAGE_ITEMS_MAX,
    REQUEST_TIMEOUT_DEFAULT_MS,
)
from nextgen.kernel.limits.pulsar import (
    DEFAULT_NAMESPACE_TTL_MS,
    DIRECTORY_CREATES_PER_REQUEST_MAX,
    DIRECTORY_NAMES_WAITING_MAX,
    DIRECTORY_READS_IN_FLIGHT_MAX,
    DIRECTORY_READS_PER_REQUEST_MAX,
    TOPIC_LIST_BYTES_MAX,
)
from nextgen.kernel.routing.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    PARTITION_SUFFIX,
    Domain,
    NamespaceName,
    TopicName,
)
from nextgen.pulsar.metadata_commands import Located, StoredSchema
from nextgen.tasks.background import join
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    LookupAnswer,
)

DEFAULT_NAMESPACE_TEXT = f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}"

_CLASSIC = frozenset({Domain.PERSISTENT, Domain.NON_PERSISTENT})
_ATTEMPTS_BEHIND_A_CREATE = 2
"""The first may share an answer that was on its way before the topic was there."""

_NAME_BYTES_OVERHEAD = 3
"""Tag and length of a name in a list: a length below 2**14 takes two bytes."""

Created = Callable[[int, int, Sequence[str]], None]
"""Is called with a shard id, a position and names: at this position these topics are there, or were
refused. BEFORE the caller who wanted them hears of it."""

Lookup = Callable[[TopicName], Awaitable[LookupAnswer]]
"""Returns where a unit is served, or the answer that says why not. Raises ``MetadataError``."""


class Shards(Protocol):
    """The way to the shards: a ``ShardRouter``. Every method raises ``MetadataError``."""

    def shard_of_key(self, routing_key: str) -> int: ...

    async def call(
        self, shard_id: int, request: pb.ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> pb.ShardResponse: ...


class Cluster(Protocol):
    """What is known of the cluster: a ``ClusterLink``."""

    @property
    def view(self) -> ClusterView: ...

    def on_change(self, listener: ChangeListener) -> None: ...


class RoutedTopicDirectory:
    """A ``TopicDirectory`` over the shards. Owned by one event loop; ``stop`` it at the end.

    ``lookup`` is asked first where something better than the shards knows, a cache for example;
    such a cache hears of creations by ``created``.
    ``public/default``, and its tenant, are created when a topic of it is to be created.
    """

    def __init__(
        self,
        *,
        shards: Shards,
        cluster: Cluster,
        lookup: Lookup | None = None,
        created: Created | None = None,
    ) -> None:
        self._shards = shards
        self._tell_created = created or _ignore_created
        self._cluster = cluster
        self._lookup = lookup or self._asked
        self._schemas = BrokerSchemas()
        self._broker_urls: list[str] | None = None
        self._default_is_there_until = float("-inf")
        self._reads = 0
        """Requests for parents that were sent: a question joins those that were not sent yet."""
        self._topics = _questions(self._read_topics, DIRECTORY_READS_PER_REQUEST_MAX)
        self._parents = _questions(self._read_parents, DIRECTORY_READS_PER_REQUEST_MAX)
        self._creates = _questions(self._create_topics, DIRECTORY_CREATES_PER_REQUEST_MAX)
        self._lookups = _questions(self._look_up, NAMES_PER_LOOKUP_MAX)
        self._default_is_made = _questions(self._make_default_namespace, 1)
        cluster.on_change(self._on_change)

    def __repr__(self) -> str:
        return f"<RoutedTopicDirectory topics={self._topics!r} lookups={self._lookups!r}>"

    async def stop(self) -> None:
        """Give up what is under way and close the channels to brokers."""
        for questions in (self._topics, self._parents, self._lookups):
            await questions.stop()
        await self._creates.stop()
        await self._default_is_made.stop()
        await self._schemas.stop()

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """See ``TopicDirectory.partitions``."""
        _check_classic(name)
        count = await self._stored_partitions(name)
        if count is None:
            if not create or name.partition is not None:
                raise _not_found(name)
            return await self._created(name)
        if name.partition is None:
            return count
        if name.partition < count:
            return 0
        raise Refused(
            RejectionCode.NOT_FOUND,
            f"topic {name.base_text} has {count} partitions, {name.partition} is none of them",
        )

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        """See ``TopicDirectory.locate``."""
        return located(name, await self._served(name, create=create))

    async def raise_epoch(
        self, name: TopicName, *, topic_id: str, epoch: int, used_epoch: int
    ) -> Located:
        """Have a unit assigned above ``used_epoch`` if the assignment of ``epoch`` still holds.

        For its owner, whose ledger knows that epoch. Returns where the unit is then.

        Raises:
            Refused: ``LIMIT_EXCEEDED``: so high an epoch is taken for damage.
            MetadataError: It may have been assigned, or not.
        """
        used = pb.UsedEpoch(topic=name.text, topic_id=topic_id, epoch=epoch, used_epoch=used_epoch)
        request = pb.ShardRequest(lookup=pb.ShardLookupRequest(topics=[name.text], used=[used]))
        shard_id = self._shards.shard_of_key(name.routing_key)
        response = await self._shards.call(shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)
        (answer,) = response.lookup.answers
        return located(name, _checked(answer))

    def any_broker_url(self) -> str | None:
        """See ``TopicDirectory.any_broker_url``. By chance, so that brokers share the load."""
        urls = self._broker_urls
        if urls is None:
            urls = self._broker_urls = [
                broker.endpoints.pulsar_url
                for broker in self._cluster.view.brokers.values()
                if broker.is_live and broker.endpoints.pulsar_url
            ]
        return random.choice(urls) if urls else None

    async def topics_of_namespace(self, namespace: NamespaceName, *, domain: str) -> list[str]:
        """See ``TopicDirectory.topics_of_namespace``."""
        shard_ids = self._cluster.view.shard_ids
        if not shard_ids:
            raise Unavailable("no shard map is known here yet")
        room = _Room(namespace.text)
        listings = [
            join(self._names_in(shard_id, namespace.text, domain, room)) for shard_id in shard_ids
        ]
        try:
            names = [name for found in await asyncio.gather(*listings) for name in found]
        finally:
            for listing in listings:
                listing.cancel()
        return sorted(names)

    async def schema(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        """See ``TopicDirectory.schema``. Of a partitioned topic, its first partition's."""
        try:
            answer = await self._served(name, create=False)
        except Refused as error:
            if error.code != RejectionCode.PARTITIONED:
                raise
            name = name.of_partition(0)
            answer = await self._served(name, create=False)
        return await self._schemas.read(answer.broker_grpc, name.text, version)

    # Creating ---------------------------------------------------------------------------------

    async def make_default_namespace(self) -> None:
        """Create ``public/default``, and its tenant, unless they are there."""
        now = asyncio.get_running_loop().time()
        if now < self._default_is_there_until:
            return
        shard_id = self._shards.shard_of_key(DEFAULT_NAMESPACE_TEXT)
        item = await self._parents.ask(shard_id, DEFAULT_NAMESPACE_TEXT, self._reads)
        if not item.HasField("namespace"):
            await self._default_is_made.ask(shard_id, DEFAULT_NAMESPACE_TEXT)
        # Counted from before it was read: it may have been deleted since.
        self._default_is_there_until = now + DEFAULT_NAMESPACE_TTL_MS / 1_000

    async def _created(self, name: TopicName) -> int:
        """Create an absent topic if its namespace allows it, and return its partitions.

        Raises:
            Refused: ``NOT_FOUND``, with the reason why it was not created.
        """
        namespace = name.namespace_text
        if namespace == DEFAULT_NAMESPACE_TEXT:
            await self.make_default_namespace()
        policy = await self._policy(namespace)
        if policy is None:
            raise Refused(RejectionCode.NOT_FOUND, f"namespace {namespace} does not exist")
        if not policy.is_allowed:
            why = policy.problem or "its policy forbids it"
            raise Refused(
                RejectionCode.NOT_FOUND,
                f"topic {name.base_text} does not exist, and namespace {namespace} "
                f"does not create topics on demand: {why}",
            )
        shard_id = self._shards.shard_of_key(name.routing_key)
        outcome = await self._creates.ask(shard_id, name.base_text, policy.partitions)
        if not outcome.rejection_code:
            return policy.partitions
        if outcome.rejection_code == RejectionCode.ALREADY_EXISTS:
            return await self._partitions_of_another_creator(name)
        self._default_is_there_until = float("-inf")
        if outcome.rejection_code == RejectionCode.PARENT_NOT_FOUND:
            raise Refused(RejectionCode.NOT_FOUND, outcome.message)
        raise Refused(outcome.rejection_code, outcome.message)

    async def _partitions_of_another_creator(self, name: TopicName) -> int:
        for _ in range(_ATTEMPTS_BEHIND_A_CREATE):
            count = await self._stored_partitions(name)
            if count is not None:
                return count
        raise _not_found(name)

    async def _policy(self, namespace: str) -> AutoCreation | None:
        """Return what counts for creating topics in a namespace; None if it does not exist.

        Read after it was asked for: what was written before, effective, is seen.
        """
        tenant = namespace.partition("/")[0]
        found, above = await asyncio.gather(
            *(
                self._parents.ask(self._shards.shard_of_key(name), name, self._reads)
                for name in (namespace, tenant)
            )
        )
        if not found.HasField("namespace"):
            return None
        said = merge(
            policies_from_proto(above.tenant.policies),
            policies_from_proto(found.namespace.policies),
        )
        return auto_creation(found.namespace.properties, said.auto_creation)

    async def _make_default_namespace(
        self, _shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> list[bool]:
        tenant = pb.Command(
            command_id=_command_id(), create_tenant=pb.CreateTenant(name=DEFAULT_TENANT)
        )
        await self._execute(self._shards.shard_of_key(DEFAULT_TENANT), tenant)
        namespace = pb.Command(
            command_id=_command_id(),
            create_namespace=pb.CreateNamespace(name=DEFAULT_NAMESPACE_TEXT),
        )
        await self._execute(self._shards.shard_of_key(DEFAULT_NAMESPACE_TEXT), namespace)
        return [True] * len(questions)

    async def _execute(self, shard_id: int, command: pb.Command) -> pb.CommandResult:
        """Carry out a command; that what it creates is there already is no refusal."""
        request = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
        response = await self._shards.call(shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)
        if len(response.execute.results) != 1:
            raise Unavailable("a shard answered a command without a result")
        result = response.execute.results[0]
        if result.rejection_code not in {"", RejectionCode.ALREADY_EXISTS}:
            raise Refused(result.rejection_code, result.message)
        return result

    # Where it is served -----------------------------------------------------------------------

    async def _served(self, name: TopicName, *, create: bool) -> LookupAnswer:
        _check_classic(name)
        answer = await self._lookup(name)
        is_absent = answer.rejection_code == RejectionCode.NOT_FOUND
        if is_absent and create and name.partition is None:
            await self._created(name)
            for _ in range(_ATTEMPTS_BEHIND_A_CREATE):
                answer = await self._lookup(name)
                if answer.rejection_code != RejectionCode.NOT_FOUND:
                    break
        return _checked(answer)

    async def _asked(self, name: TopicName) -> LookupAnswer:
        shard_id = self._shards.shard_of_key(name.routing_key)
        answer = await self._lookups.ask(shard_id, name.text)
        if answer.session_id and self._cluster.view.has_session_ended(
            answer.broker_id, answer.session_id
        ):
            raise Unavailable(f"{name.text} was assigned to a broker that is gone")
        return answer

    async def _stored_partitions(self, name: TopicName) -> int | None:
        shard_id = self._shards.shard_of_key(name.routing_key)
        item = await self._topics.ask(shard_id, name.base_text)
        return item.topic.partitions if item.HasField("topic") else None

    # Requests ---------------------------------------------------------------------------------

    async def _read_topics(
        self, shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> Sequence[Item]:
        names = [pb.ObjectName(kind=KIND_TOPIC, name=name) for name, _ in questions]
        return await self._read(shard_id, names)

    async def _read_parents(
        self, shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> Sequence[Item]:
        self._reads += 1
        names = [
            pb.ObjectName(kind=KIND_NAMESPACE if "/" in name else KIND_TENANT, name=name)
            for name, _ in questions
        ]
        return await self._read(shard_id, names)

    async def _read(self, shard_id: int, names: Sequence[pb.ObjectName]) -> Sequence[Item]:
        request = pb.ShardRequest(get=pb.GetRequest(names=names))
        response = await self._shards.call(shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)
        return response.get.items

    async def _create_topics(
        self, shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> Sequence[pb.TopicOutcome]:
        topics = [pb.TopicSpec(name=name, partitions=count) for name, count in questions]
        command = pb.Command(command_id=_command_id(), create_topics=pb.CreateTopics(topics=topics))
        result = await self._execute(shard_id, command)
        self._tell_created(shard_id, result.position, [name for name, _ in questions])
        return result.topics

    async def _look_up(
        self, shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> Sequence[LookupAnswer]:
        names = [name for name, _ in questions]
        request = pb.ShardRequest(lookup=pb.ShardLookupRequest(topics=names))
        response = await self._shards.call(shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)
        return response.lookup.answers

    async def _names_in(self, shard_id: int, namespace: str, domain: str, room: _Room) -> list[str]:
        """Return the names of the namespace's topics that the shard has."""
        names: list[str] = []
        listing = pb.ListRequest(
            kind=KIND_TOPIC, parent=namespace, limit=PAGE_ITEMS_MAX, domain=domain
        )
        while True:
            response = await self._shards.call(
                shard_id, pb.ShardRequest(list=listing), timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
            )
            items = response.list.items
            for item in items:
                found = _unit_names(item)
                room.take(found)
                names += found
            if not response.list.more_items or not items:
                return names
            listing.after = items[-1].name

    def _on_change(self, _view: ClusterView, update: ClusterUpdate) -> None:
        if update.brokers:
            self._broker_urls = None


class _Room:
    """What is left of the one frame that a listing has to fit into."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._bytes = TOPIC_LIST_BYTES_MAX

    def take(self, names: Iterable[str]) -> None:
        self._bytes -= sum(len(name.encode()) + _NAME_BYTES_OVERHEAD for name in names)
        if self._bytes < 0:
            raise Refused(
                RejectionCode.LIMIT_EXCEEDED,
                f"namespace {self._namespace} has more topics than the "
                f"{TOPIC_LIST_BYTES_MAX} bytes of one answer hold",
            )


def located(name: TopicName, answer: LookupAnswer) -> Located:
    """Return what a lookup answered about ``name``."""
    return Located(
        name=name.text,
        broker_id=answer.broker_id,
        session_id=answer.session_id,
        broker_url=answer.broker_url,
        topic_id=answer.topic_id,
        unit=name.unit.text,
        epoch=answer.epoch,
    )


def _checked(answer: LookupAnswer) -> LookupAnswer:
    """Return ``answer`` if it says where.

    Raises:
        MetadataError: It says why not.
    """
    if not answer.rejection_code:
        return answer
    if answer.retryable:
        raise Unavailable(f"{answer.rejection_code}: {answer.message}")
    raise Refused(answer.rejection_code, answer.message)


def _unit_names(item: Item) -> list[str]:
    count = item.topic.partitions
    if not count:
        return [item.name]
    return [f"{item.name}{PARTITION_SUFFIX}{number}" for number in range(count)]


def _check_classic(name: TopicName) -> None:
    if name.domain not in _CLASSIC:
        raise _not_found(name)


def _not_found(name: TopicName) -> Refused:
    return Refused(RejectionCode.NOT_FOUND, f"topic {name.text} does not exist")


def _ignore_created(_shard_id: int, _position: int, _names: Sequence[str]) -> None:
    """For processes that remember no absent names."""


def _command_id() -> bytes:
    return secrets.token_bytes(COMMAND_ID_BYTES)


def _questions(carry_out: CarryOut[Answer], batch_max: int) -> SharedQuestions[Answer]:
    return SharedQuestions(
        carry_out,
        batch_max=batch_max,
        in_flight_max=DIRECTORY_READS_IN_FLIGHT_MAX,
        waiting_max=DIRECTORY_NAMES_WAITING_MAX,
    )
