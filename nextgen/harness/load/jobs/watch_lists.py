"""The job of watchers of topic lists by pattern, as Java clients have them: what each is sent."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from nextgen.harness.load.jobs.watch import WatchedNames, wait_until
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import Unavailable
from nextgen.pulsar.client import PulsarClientConnection, usual_greeting
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.runtime.security.client_token import token_in_use
from nextgen.tasks.groups import TaskGroup
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandWatchTopicList

SETUP_TIMEOUT_MS = 60_000

EXTRAS_MS = 300
"""Updates are awaited for this long after the last one that has to come."""


class _Watchers:
    """The watchers of this process: what each has, by its connection's updates alone."""

    def __init__(self, names: WatchedNames) -> None:
        self.seen: dict[int, list[tuple[str, int, float]]] = {}
        """By watcher: name, place in the order of arrival, and moment of arrival."""
        self.errors: list[str] = []
        self.notified = asyncio.Event()
        self._names = names
        self._lists: dict[int, set[str]] = {}
        self._hashes: dict[int, str] = {}

    async def begin(self, connection: PulsarClientConnection, watcher: int) -> None:
        self.seen[watcher] = []
        prefix = self._names.prefix(watcher).partition("://")[2]
        request = CommandWatchTopicList(
            watcher_id=watcher, namespace=self._names.namespace, topics_pattern=f"{prefix}.*"
        )
        answer = await connection.request(
            BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=request),
            timeout_ms=SETUP_TIMEOUT_MS,
        )
        if answer.type != BaseCommand.WATCH_TOPIC_LIST_SUCCESS:
            raise Unavailable(f"watcher {watcher} was refused: {answer.error.message}")
        self._lists[watcher] = set(answer.watchTopicListSuccess.topic)

    def take(self, command: BaseCommand, _: bytes) -> None:
        arrived_at = time.monotonic()
        if command.type != BaseCommand.WATCH_TOPIC_UPDATE:
            return
        update = command.watchTopicUpdate
        seen = self.seen[update.watcher_id]
        seen.extend((name, len(seen) + at, arrived_at) for at, name in enumerate(update.new_topics))
        if update.deleted_topics:
            self.errors.append(f"{update.deleted_topics[0]} was deleted, says an update")
        self._hashes[update.watcher_id] = update.topics_hash
        self.notified.set()

    def check_hashes(self) -> None:
        """Note watchers whose last update does not have the hash of what they have."""
        for watcher, hash_ in self._hashes.items():
            names = self._lists[watcher].union(name for name, _, _ in self.seen[watcher])
            if hash_ != topics_hash(names):
                self.errors.append(f"watcher {watcher} has another list than its hash is of")


async def watch_topic_lists(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Watch lists over some connections until each watcher has as many topics as the command
    {"topics": {watcher: number}} says.

    Reports {"ready": true} when every watcher has its list.
    """
    watchers = _Watchers(WatchedNames(**job["names"]))
    host, _, port = job["pulsar"].rpartition(":")
    connections = [
        await PulsarClientConnection.open(
            host, int(port), on_push=watchers.take, connect=usual_greeting(token_in_use())
        )
        for _ in range(min(job["streams"], len(job["watchers"])))
    ]
    try:
        async with TaskGroup() as beginnings:
            for place, number in enumerate(job["watchers"]):
                connection = connections[place % len(connections)]
                beginnings.create_task(watchers.begin(connection, number))
        reporter.send({"ready": True})
        topics = (await reporter.commands.get())["topics"]
        due = {number: topics.get(str(number), 0) for number in job["watchers"]}
        seen = watchers.seen
        await wait_until(
            lambda: all(len(seen[number]) >= count for number, count in due.items()),
            watchers.notified,
        )
        await asyncio.sleep(EXTRAS_MS / 1_000)
        watchers.check_hashes()
    finally:
        for connection in connections:
            connection.close()
    return {"seen": watchers.seen, "errors": watchers.errors, "streams": len(connections)}
