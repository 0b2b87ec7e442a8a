"""Topics by name: those that exist, and those that a client creates by its first use.

    name ─┬─ to be used ─▶ UseTopics ─▶ its partitions: the shard creates it by the policies
          │                    └─ a shard node of the release before does not know it
          │                           ▼
          │           exists? ─▶ policies of namespace and tenant ─▶ CreateTopics ─▶ as above
          └─ to be read ─▶ its partitions, if it exists

Questions at the same time share requests, and the same question is sent once. Two creators of one
name, in this process or elsewhere, meet in its shard: the second one finds the topic there.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence

from nextgen.client.routing.shard_calls import Shards, ask_home, call_home, questions
from nextgen.client.routing.topic_answers import Lookup, check_classic, not_found
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.auto_creation import AutoCreation, auto_creation
from nextgen.kernel.governance.policies import merge
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES, REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.pulsar import (
    DEFAULT_NAMESPACE_TTL_MS,
    DIRECTORY_CREATES_PER_REQUEST_MAX,
    DIRECTORY_READS_PER_REQUEST_MAX,
)
from nextgen.kernel.routing.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    Domain,
    TopicName,
    tenant_in,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    LookupAnswer,
)

DEFAULT_NAMESPACE_TEXT = f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}"

_IS_THERE = frozenset({"", RejectionCode.ALREADY_EXISTS})
"""Outcomes of a use by which the topic exists."""

_ATTEMPTS_BEHIND_A_CREATE = 2
"""The first attempt may share an answer from before the topic was created."""

Created = Callable[[int, int, Iterable[str]], None]
"""Called with a shard id, a position and names: as of this position these topics exist or were
refused. The call comes BEFORE the creation's caller gets its answer."""


class TopicCreation:
    """Owned by one event loop; ``stop`` it at the end.

    A cache of absent names learns of creations by ``created``.
    ``public/default``, and its tenant, are created when a topic of it is to be created.
    """

    def __init__(
        self, shards: Shards, created: Created | None = None, *, broker_id: str = ""
    ) -> None:
        """``broker_id``: of the broker that is to serve the topics if it may. "": any."""
        self._shards = shards
        self._broker_id = broker_id
        self._note_created = created or _ignore_created
        self._default_is_there_until = float("-inf")
        self._reads = 0
        """Number of requests for parents sent so far: a question joins only an unsent request."""
        self._uses_sent = 0
        """Number of requests to use topics that were sent so far."""
        # By tenant: a request waits for a turn of each tenant that it creates topics of.
        self._uses = questions(self._use_topics, DIRECTORY_CREATES_PER_REQUEST_MAX, tenant_in)
        self._topics = questions(self._read_topics, DIRECTORY_READS_PER_REQUEST_MAX)
        self._parents = questions(self._read_parents, DIRECTORY_READS_PER_REQUEST_MAX)
        # By tenant: a request waits for a turn of each tenant that it creates topics of.
        self._creates = questions(self._create_topics, DIRECTORY_CREATES_PER_REQUEST_MAX, tenant_in)
        self._default_is_made = questions(self._make_default_namespace, 1)

    def __repr__(self) -> str:
        return f"<TopicCreation topics={self._topics!r} uses={self._uses!r}>"

    async def stop(self) -> None:
        """Give up the requests under way; their callers get ``Unavailable``."""
        for each in (self._topics, self._parents):
            await each.stop()
        await self._uses.stop()
        await self._creates.stop()
        await self._default_is_made.stop()

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """See ``TopicDirectory.partitions``."""
        check_classic(name)
        if create and name.partition is None:
            return await self._use(name)
        count = await self._stored_partitions(name)
        if count is None:
            raise not_found(name)
        if name.partition is None:
            return count
        if name.partition < count:
            return 0
        raise Refused(
            RejectionCode.NOT_FOUND,
            f"topic {name.base_text} has {count} partitions, {name.partition} is none of them",
        )

    async def look_up_created(self, name: TopicName, lookup: Lookup) -> LookupAnswer:
        """Create an absent topic if its namespace allows it; return the answer of ``lookup`` then.

        Raises:
            Refused: ``NOT_FOUND``, with the reason why it was not created.
        """
        await self._use(name)
        for _ in range(_ATTEMPTS_BEHIND_A_CREATE):
            answer = await lookup(name)
            if answer.rejection_code != RejectionCode.NOT_FOUND:
                break
        return answer

    async def create_scalable(self, name: TopicName) -> None:
        """Create an absent scalable topic if its namespace allows it.

        Raises:
            Refused: ``NOT_FOUND``, with the reason why it was not created.
        """
        await self._use(name)

    async def make_default_namespace(self) -> None:
        """Create ``public/default``, and its tenant, unless they are there."""
        now = asyncio.get_running_loop().time()
        if now < self._default_is_there_until:
            return
        key = DEFAULT_NAMESPACE_TEXT
        item = await ask_home(self._shards, self._parents, key, key, self._reads)
        if not item.HasField("namespace"):
            await ask_home(self._shards, self._default_is_made, key, key)
        # The time runs from before the read: the namespace may have been deleted since.
        self._default_is_there_until = now + DEFAULT_NAMESPACE_TTL_MS / 1_000

    async def _use(self, name: TopicName) -> int:
        """Return a topic's partitions; an absent one is created if its namespace allows it.

        Raises:
            Refused: ``NOT_FOUND``, with the reason why it was not created.
        """
        try:
            outcome = await self._used(name)
            is_default = name.namespace_text == DEFAULT_NAMESPACE_TEXT
            if is_default and outcome.rejection_code == RejectionCode.PARENT_NOT_FOUND:
                self._default_is_there_until = float("-inf")
                await self.make_default_namespace()
                outcome = await self._used(name)
        except InvalidRequest:
            return await self._use_stepwise(name)
        if outcome.rejection_code in _IS_THERE:
            return outcome.partitions
        raise _refusal(outcome)

    async def _used(self, name: TopicName) -> pb.TopicOutcome:
        """Return the shard's outcome. A refusal is of a request that was sent after this call, so
        a policy that was effective before was known."""
        key = name.routing_key
        sent_before = self._uses_sent
        while True:
            sent, outcome = await ask_home(self._shards, self._uses, key, name.base_text)
            if sent > sent_before or outcome.rejection_code in _IS_THERE:
                return outcome

    async def _use_stepwise(self, name: TopicName) -> int:
        """Read the topic, and create it if it is absent: for a shard node of the release before.

        Such a node does not look at the policies. This process has to, as ``_create`` does.
        """
        count = await self._stored_partitions(name)
        return await self._create(name) if count is None else count

    async def _create(self, name: TopicName) -> int:
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
        partitions = 0 if name.domain is Domain.TOPIC else policy.partitions
        outcome = await ask_home(
            self._shards, self._creates, name.routing_key, name.base_text, partitions
        )
        if not outcome.rejection_code:
            return partitions
        if outcome.rejection_code == RejectionCode.ALREADY_EXISTS:
            return await self._partitions_of_another_creator(name)
        self._default_is_there_until = float("-inf")
        raise _refusal(outcome)

    async def _partitions_of_another_creator(self, name: TopicName) -> int:
        for _ in range(_ATTEMPTS_BEHIND_A_CREATE):
            count = await self._stored_partitions(name)
            if count is not None:
                return count
        raise not_found(name)

    async def _policy(self, namespace: str) -> AutoCreation | None:
        """Return the rule for creating topics in a namespace; None if it does not exist.

        It is read after this call, so a write that was effective before is seen.
        """
        tenant = namespace.partition("/")[0]
        found, above = await asyncio.gather(
            *(
                ask_home(self._shards, self._parents, name, name, self._reads)
                for name in (namespace, tenant)
            )
        )
        if not found.HasField("namespace"):
            return None
        policies = merge(
            policies_from_proto(above.tenant.policies),
            policies_from_proto(found.namespace.policies),
        )
        return auto_creation(found.namespace.properties, policies.auto_creation)

    async def _stored_partitions(self, name: TopicName) -> int | None:
        item = await ask_home(self._shards, self._topics, name.routing_key, name.base_text)
        return item.topic.partitions if item.HasField("topic") else None

    # Requests ---------------------------------------------------------------------------------

    async def _make_default_namespace(
        self, _shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> list[bool]:
        tenant = pb.Command(
            command_id=_command_id(), create_tenant=pb.CreateTenant(name=DEFAULT_TENANT)
        )
        await self._execute_at_home(DEFAULT_TENANT, tenant)
        namespace = pb.Command(
            command_id=_command_id(),
            create_namespace=pb.CreateNamespace(name=DEFAULT_NAMESPACE_TEXT),
        )
        await self._execute_at_home(DEFAULT_NAMESPACE_TEXT, namespace)
        return [True] * len(questions)

    async def _execute_at_home(self, name: str, command: pb.Command) -> None:
        """Run a command of the tenant or namespace ``name``, as ``_execute``."""
        request = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
        _result(await call_home(self._shards, name, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS))

    async def _execute(self, shard_id: int, command: pb.Command) -> pb.CommandResult:
        """Run a command; an object that exists already is no error."""
        request = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
        return _result(
            await self._shards.call(shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)
        )

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
        try:
            response = await self._shards.call(
                shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
            )
        except InvalidRequest:
            # Hardly any object is as large as it may be: only then the answer is too large.
            if len(names) == 1:
                raise
            half = len(names) // 2
            parts = (names[:half], names[half:])
            first, second = await asyncio.gather(*(self._read(shard_id, part) for part in parts))
            return [*first, *second]
        return response.get.items

    async def _use_topics(
        self, shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> list[tuple[int, pb.TopicOutcome]]:
        """Return the outcomes, each with the number of this request."""
        self._uses_sent += 1
        sent, names = self._uses_sent, [name for name, _ in questions]
        body = pb.UseTopicsRequest(names=names, preferred_broker_id=self._broker_id)
        request = pb.ShardRequest(use_topics=body)
        response = await self._shards.call(shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)
        self._note_created(shard_id, response.position, names)
        return [(sent, outcome) for outcome in response.use_topics.topics]

    async def _create_topics(
        self, shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> Sequence[pb.TopicOutcome]:
        topics = [pb.TopicSpec(name=name, partitions=count) for name, count in questions]
        body = pb.CreateTopics(topics=topics, on_demand=True, preferred_broker_id=self._broker_id)
        command = pb.Command(command_id=_command_id(), create_topics=body)
        result = await self._execute(shard_id, command)
        self._note_created(shard_id, result.position, [name for name, _ in questions])
        return result.topics


def _result(response: pb.ShardResponse) -> pb.CommandResult:
    if len(response.execute.results) != 1:
        raise Unavailable("a shard answered a command without a result")
    result = response.execute.results[0]
    if result.rejection_code not in {"", RejectionCode.ALREADY_EXISTS}:
        raise Refused(result.rejection_code, result.message)
    return result


def _refusal(outcome: pb.TopicOutcome) -> MetadataError:
    """Return the error for a topic that is not there and was not created."""
    if outcome.rejection_code == RejectionCode.PARENT_NOT_FOUND:
        return Refused(RejectionCode.NOT_FOUND, outcome.message)
    if outcome.rejection_code == RejectionCode.JUST_DELETED:
        return Unavailable(outcome.message)
    return Refused(outcome.rejection_code, outcome.message)


def _ignore_created(_shard_id: int, _position: int, _names: Sequence[str]) -> None:
    """The ``Created`` of a process that caches no absent names."""


def _command_id() -> bytes:
    return secrets.token_bytes(COMMAND_ID_BYTES)
