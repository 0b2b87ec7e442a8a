"""``Client`` for programs without an event loop: the same calls, each waits for its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from nextgen.client.client import TIMEOUT_DEFAULT_MS, Client
from nextgen.client.discovery.lookup_stream import LookupStream
from nextgen.client.model import TopicLocation

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


def _waiting(
    method: Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, Value]],
) -> Callable[Concatenate[BlockingClient, Arguments], Value]:
    """Return ``method`` of a ``Client`` as a blocking method."""

    @wraps(method)
    def call(
        client: BlockingClient, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Value:
        return client._wait(method(client._client, *arguments, **named))

    return call


def _iterating(
    method: Callable[Concatenate[Client, Arguments], AsyncIterator[Value]],
) -> Callable[Concatenate[BlockingClient, Arguments], Iterator[Value]]:
    """Return ``method`` of a ``Client`` as one that waits for each item."""

    @wraps(method)
    def call(
        client: BlockingClient, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Iterator[Value]:
        return client._iterate(method(client._client, *arguments, **named))

    return call


def _generating(
    method: Callable[Concatenate[Client, Arguments], AsyncGenerator[Value]],
) -> Callable[Concatenate[BlockingClient, Arguments], Generator[Value]]:
    """Return ``method`` of a ``Client`` as one that waits for each item, and can be closed."""

    @wraps(method)
    def call(
        client: BlockingClient, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Generator[Value]:
        return client._generate(method(client._client, *arguments, **named))

    return call


class BlockingClient:
    """``Client`` behind a thread of its own. Any number of threads may use it.

    Its methods take what those of ``Client`` of the same name take, and promise the same.
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

    create_tenant = _waiting(Client.create_tenant)
    set_tenant_properties = _waiting(Client.set_tenant_properties)
    rename_tenant = _waiting(Client.rename_tenant)
    delete_tenant = _waiting(Client.delete_tenant)
    get_tenant = _waiting(Client.get_tenant)
    list_tenants = _iterating(Client.list_tenants)

    create_namespace = _waiting(Client.create_namespace)
    set_namespace_properties = _waiting(Client.set_namespace_properties)
    rename_namespace = _waiting(Client.rename_namespace)
    delete_namespace = _waiting(Client.delete_namespace)
    get_namespace = _waiting(Client.get_namespace)
    list_namespaces = _iterating(Client.list_namespaces)

    create_topics = _waiting(Client.create_topics)
    set_topic_properties = _waiting(Client.set_topic_properties)
    update_partitions = _waiting(Client.update_partitions)
    rename_topic = _waiting(Client.rename_topic)
    delete_topic = _waiting(Client.delete_topic)
    get_topic = _waiting(Client.get_topic)
    get_scalable_topic = _waiting(Client.get_scalable_topic)
    split_segment = _waiting(Client.split_segment)
    merge_segments = _waiting(Client.merge_segments)
    rebucket_segment = _waiting(Client.rebucket_segment)
    migrate_topic = _waiting(Client.migrate_topic)
    create_scalable_subscription = _waiting(Client.create_scalable_subscription)
    delete_scalable_subscription = _waiting(Client.delete_scalable_subscription)
    seek_scalable_subscription = _waiting(Client.seek_scalable_subscription)
    list_topics = _iterating(Client.list_topics)
    topic_names_page = _waiting(Client.topic_names_page)
    count_topics = _waiting(Client.count_topics)

    grant = _waiting(Client.grant)
    revoke = _waiting(Client.revoke)
    grant_subscription = _waiting(Client.grant_subscription)
    revoke_subscription = _waiting(Client.revoke_subscription)
    grant_admin = _waiting(Client.grant_admin)
    revoke_admin = _waiting(Client.revoke_admin)

    create_shadow = _waiting(Client.create_shadow)
    get_shadow_source = _waiting(Client.get_shadow_source)
    get_shadows = _waiting(Client.get_shadows)
    set_shadows = _waiting(Client.set_shadows)
    remove_shadows = _waiting(Client.remove_shadows)

    set_policies = _waiting(Client.set_policies)
    get_policies = _waiting(Client.get_policies)

    lookup = _waiting(Client.lookup)
    move_topics = _waiting(Client.move_topics)
    unload_topics = _waiting(Client.unload_topics)

    # Close a watch's generator, or end its ``for``, to end the watch.
    watch_tenants = _generating(Client.watch_tenants)
    watch_namespaces = _generating(Client.watch_namespaces)
    watch_topics = _generating(Client.watch_topics)
    watch_assignments = _generating(Client.watch_assignments)
    watch_shard_map = _generating(Client.watch_shard_map)

    cluster = _waiting(Client.cluster)
    counters = _waiting(Client.counters)

    def lookup_stream(self) -> BlockingLookupStream:
        """Return a stream for many lookups; several threads may use it at the same time."""
        return BlockingLookupStream(self, self._wait(_stream_of(self._client)))

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
        lookup = self._stream.lookup(topics, fresh=fresh, min_epochs=min_epochs)
        return self._client._wait(lookup)

    def close(self) -> None:
        self._client._wait(self._stream.close())


class _End:
    """Marks the end of an iteration: a future cannot carry ``StopIteration``."""


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
