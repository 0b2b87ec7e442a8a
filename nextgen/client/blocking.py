"""``Client`` for programs without an event loop: the same calls, each waits for its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, TypeVar

from nextgen.client.client import TIMEOUT_DEFAULT_MS, Client
from nextgen.client.discovery.lookup_stream import LookupStream
from nextgen.client.model import (
    ClusterState,
    CreatedTopic,
    Namespace,
    NewTopic,
    ObjectPolicies,
    Tenant,
    Topic,
    TopicLocation,
    Written,
)
from nextgen.client.watch_model import Assignment, Change, ShardMap
from nextgen.kernel.governance.policies import Policies

Value = TypeVar("Value")


class BlockingClient:
    """``Client`` behind a thread of its own. Any number of threads may use it.

    What each method promises stands at the method of the same name in ``Client``.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_ms: int = TIMEOUT_DEFAULT_MS,
        read_your_writes: bool = False,
        effective: bool = False,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="nextgen-client", daemon=True
        )
        self._thread.start()
        self._client = self._wait(_made(endpoints, timeout_ms, read_your_writes, effective))

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread. Harmless when closed already."""
        if self._loop.is_closed():
            return
        self._wait(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def create_tenant(self, name: str, properties: Mapping[str, str] | None = None) -> Written:
        return self._wait(self._client.create_tenant(name, properties))

    def set_tenant_properties(
        self, name: str, properties: Mapping[str, str], *, expected_version: int = 0
    ) -> Written:
        return self._wait(
            self._client.set_tenant_properties(name, properties, expected_version=expected_version)
        )

    def delete_tenant(self, name: str) -> Written:
        return self._wait(self._client.delete_tenant(name))

    def get_tenant(self, name: str, *, min_position: int = 0) -> Tenant | None:
        return self._wait(self._client.get_tenant(name, min_position=min_position))

    def list_tenants(self) -> Iterator[Tenant]:
        return self._iterate(self._client.list_tenants())

    def create_namespace(self, name: str, properties: Mapping[str, str] | None = None) -> Written:
        return self._wait(self._client.create_namespace(name, properties))

    def set_namespace_properties(
        self, name: str, properties: Mapping[str, str], *, expected_version: int = 0
    ) -> Written:
        return self._wait(
            self._client.set_namespace_properties(
                name, properties, expected_version=expected_version
            )
        )

    def delete_namespace(self, name: str) -> Written:
        return self._wait(self._client.delete_namespace(name))

    def get_namespace(self, name: str, *, min_position: int = 0) -> Namespace | None:
        return self._wait(self._client.get_namespace(name, min_position=min_position))

    def list_namespaces(self, tenant: str) -> Iterator[Namespace]:
        return self._iterate(self._client.list_namespaces(tenant))

    def create_topics(self, topics: Sequence[NewTopic | str]) -> list[CreatedTopic]:
        return self._wait(self._client.create_topics(topics))

    def set_topic_properties(
        self, name: str, properties: Mapping[str, str], *, expected_version: int = 0
    ) -> Written:
        return self._wait(
            self._client.set_topic_properties(name, properties, expected_version=expected_version)
        )

    def delete_topic(self, name: str) -> Written:
        return self._wait(self._client.delete_topic(name))

    def get_topic(self, name: str, *, min_position: int = 0) -> Topic | None:
        return self._wait(self._client.get_topic(name, min_position=min_position))

    def list_topics(self, namespace: str, *, domain: str = "") -> Iterator[Topic]:
        return self._iterate(self._client.list_topics(namespace, domain=domain))

    def set_policies(
        self, name: str, policies: Policies, *, expected_version: int | None = None
    ) -> Written:
        return self._wait(
            self._client.set_policies(name, policies, expected_version=expected_version)
        )

    def get_policies(self, name: str, *, merged: bool = False) -> ObjectPolicies:
        return self._wait(self._client.get_policies(name, merged=merged))

    def lookup(
        self,
        topics: Sequence[str],
        *,
        fresh: bool = False,
        min_epochs: Mapping[str, int] | None = None,
    ) -> list[TopicLocation]:
        return self._wait(self._client.lookup(topics, fresh=fresh, min_epochs=min_epochs))

    def lookup_stream(self) -> BlockingLookupStream:
        """Return a stream for many lookups; several threads may use it at the same time."""
        return BlockingLookupStream(self, self._wait(_stream_of(self._client)))

    def move_topics(
        self, moves: Mapping[str, str], *, expected_epochs: Mapping[str, int] | None = None
    ) -> list[TopicLocation]:
        return self._wait(self._client.move_topics(moves, expected_epochs=expected_epochs))

    # Close a watch's generator, or end its ``for``, to end the watch.

    def watch_tenants(
        self,
        *,
        prefix: str = "",
        names: Sequence[str] = (),
        resume: str = "",
        without_snapshot: bool = False,
    ) -> Generator[Change[Tenant]]:
        watch = self._client.watch_tenants(
            prefix=prefix, names=names, resume=resume, without_snapshot=without_snapshot
        )
        return self._generate(watch)

    def watch_namespaces(
        self,
        *,
        prefix: str = "",
        names: Sequence[str] = (),
        resume: str = "",
        without_snapshot: bool = False,
    ) -> Generator[Change[Namespace]]:
        watch = self._client.watch_namespaces(
            prefix=prefix, names=names, resume=resume, without_snapshot=without_snapshot
        )
        return self._generate(watch)

    def watch_topics(
        self,
        *,
        prefix: str = "",
        names: Sequence[str] = (),
        resume: str = "",
        without_snapshot: bool = False,
    ) -> Generator[Change[Topic]]:
        watch = self._client.watch_topics(
            prefix=prefix, names=names, resume=resume, without_snapshot=without_snapshot
        )
        return self._generate(watch)

    def watch_assignments(
        self,
        *,
        prefix: str = "",
        names: Sequence[str] = (),
        resume: str = "",
        without_snapshot: bool = False,
    ) -> Generator[Change[Assignment]]:
        watch = self._client.watch_assignments(
            prefix=prefix, names=names, resume=resume, without_snapshot=without_snapshot
        )
        return self._generate(watch)

    def watch_shard_map(self) -> Generator[ShardMap]:
        return self._generate(self._client.watch_shard_map())

    def cluster(self) -> ClusterState:
        return self._wait(self._client.cluster())

    def counters(self) -> dict[str, int]:
        return self._wait(self._client.counters())

    def _wait(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _generate(self, items: AsyncGenerator[Value]) -> Generator[Value]:
        try:
            yield from self._iterate(items)
        finally:
            if not self._loop.is_closed():
                self._wait(_closed(items))

    def _iterate(self, items: AsyncIterator[Value]) -> Iterator[Value]:
        while True:
            item = self._wait(_next(items))
            if isinstance(item, _End):
                return
            yield item


class BlockingLookupStream:
    """``LookupStream`` for threads."""

    def __init__(self, client: BlockingClient, stream: LookupStream) -> None:
        self._client = client
        self._stream = stream

    def __enter__(self) -> BlockingLookupStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lookup(
        self,
        topics: Sequence[str],
        *,
        fresh: bool = False,
        min_epochs: Mapping[str, int] | None = None,
    ) -> list[TopicLocation]:
        looking = self._stream.lookup(topics, fresh=fresh, min_epochs=min_epochs)
        return self._client._wait(looking)

    def close(self) -> None:
        self._client._wait(self._stream.close())


class _End:
    """Marks the end of an iteration, which an exception could not carry through a future."""


async def _next(items: AsyncIterator[Value]) -> Value | _End:
    try:
        return await anext(items)
    except StopAsyncIteration:
        return _End()


async def _closed(items: AsyncGenerator[Any]) -> None:
    await items.aclose()


async def _made(
    endpoints: Sequence[str], timeout_ms: int, read_your_writes: bool, effective: bool
) -> Client:
    # Made on the loop that will use it.
    return Client(
        endpoints,
        timeout_ms=timeout_ms,
        read_your_writes=read_your_writes,
        effective=effective,
    )


async def _stream_of(client: Client) -> LookupStream:
    return client.lookup_stream()
