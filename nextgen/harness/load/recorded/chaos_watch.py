"""The job that watches a cluster under faults and records every update in a history.

log followers     two for each shard, one of them at followers: every event of its objects,
                  live, over leader changes and restarts
public watchers   through discovery, as a program would: topics, namespaces and assignments of
                  the load, and the hot topics alone
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

from nextgen.client import Client
from nextgen.client.log.reader import EventPage, ShardLogReader
from nextgen.client.watch_model import Assignment, Change, ChangeKind, parse_token
from nextgen.harness.history.log_events import log_event_of, observation_of
from nextgen.harness.history.log_fold import kind_of_event
from nextgen.harness.history.model import (
    ObjectKind,
    Observation,
    SnapshotItem,
    WatchOpened,
    WatchProgress,
    WatchReset,
    WatchSnapshot,
)
from nextgen.harness.history.record_file import Recorder
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.governance.policies import NO_POLICIES
from nextgen.tasks.first_to_end import run_until_first
from nextgen.tasks.timeouts import timeout

TICK_INTERVAL_MS = 500
PROGRESS_INTERVAL_MS = 1_000
"""Between two records of a watcher's position while it gets no events."""

CATCH_UP_TIMEOUT_MS = 30_000
"""Time-out for a watcher to reach the positions of its shards at the stop command."""

FIRST_ANSWER_TIMEOUT_MS = 60_000
_KINDS = tuple(kind.value for kind in ObjectKind)
_WATCH = 1


class _Watcher(Protocol):
    name: str
    observed: int
    positions: dict[int, int]
    """By shard: the position up to which all matching events were delivered."""

    async def run(self) -> None: ...

    def write_progress(self) -> None: ...


class _Follower:
    """One reading of one shard's log, from its first event on."""

    def __init__(
        self,
        job: dict[str, Any],
        shard: int,
        since: int,
        recorder: Recorder,
        *,
        at_followers: bool,
    ) -> None:
        self.name = f"log-{'follower' if at_followers else 'leader'}-{shard}"
        self.observed = 0
        self.positions = {shard: since}
        self._shard = shard
        # On a cluster that others use, only what is the load's own.
        self._prefix = f"persistent://{job['tenant']}/" if since else ""
        self._reader = ShardLogReader(
            job["targets"], shard, prefer_follower=at_followers, key_prefix=self._prefix
        )
        self._recorder = recorder
        self._told_at = 0.0

    async def run(self) -> None:
        """Follow for ever."""
        since = self.positions[self._shard]
        self._recorder.write(
            WatchOpened(
                self.name,
                self._shard,
                _WATCH,
                _KINDS,
                self._prefix,
                from_position=since,
                without_snapshot=True,
                from_beginning=not since,
            )
        )
        async with aclosing(self._reader.pages(since + 1, follow=True)) as pages:
            async for page in pages:
                self._take(page)

    def write_progress(self) -> None:
        position = self.positions[self._shard]
        if position:
            self._recorder.write(WatchProgress(self.name, self._shard, _WATCH, position))

    def _take(self, page: EventPage) -> None:
        concerning = [event for event in page.events if kind_of_event(log_event_of(event))]
        for event in concerning:
            self._recorder.write(
                observation_of(event, watcher=self.name, shard=self._shard, watch=_WATCH)
            )
        self.observed += len(concerning)
        self.positions[self._shard] = page.next_position - 1
        now = time.monotonic()
        if (now - self._told_at) * 1000 >= PROGRESS_INTERVAL_MS:
            self._told_at = now
            self.write_progress()


class _PublicWatcher:
    """One watch through discovery, of one kind of objects that begin with a prefix."""

    def __init__(
        self, job: dict[str, Any], name: str, kind: ObjectKind, prefix: str, recorder: Recorder
    ) -> None:
        self.name = name
        self.observed = 0
        self.positions: dict[int, int] = {shard: 0 for shard, _ in job["since"]}
        self._targets: list[str] = job["targets"]
        self._kind = kind
        self._prefix = prefix
        self._recorder = recorder

    async def run(self) -> None:
        """Watch for ever."""
        for shard in self.positions:
            self._open(shard)
        async with Client(self._targets, timeout_ms=FIRST_ANSWER_TIMEOUT_MS) as client:
            watch: AsyncGenerator[Change[Any]] = _METHODS[self._kind](client, self._prefix)
            async with aclosing(watch) as changes:
                async for change in changes:
                    self._take(change)

    def write_progress(self) -> None:
        for shard, position in self.positions.items():
            if position:
                self._recorder.write(WatchProgress(self.name, shard, _WATCH, position))

    def _open(self, shard: int) -> None:
        self._recorder.write(
            WatchOpened(self.name, shard, _WATCH, (self._kind.value,), self._prefix)
        )

    def _take(self, change: Change[Any]) -> None:
        shard = change.shard_id
        told = parse_token(change.token) if change.kind is ChangeKind.PROGRESS else {shard: 0}
        for each in told.keys() - self.positions.keys():
            # The shard was added since.
            self.positions[each] = 0
            self._open(each)
        match change.kind:
            case ChangeKind.RESET:
                self.positions[shard] = 0
                self._recorder.write(WatchReset(self.name, shard, _WATCH))
            case ChangeKind.PRESENT:
                state = _state_of(change.value)
                self._recorder.write(
                    SnapshotItem(self.name, shard, _WATCH, self._kind.value, change.name, state)
                )
            case ChangeKind.SNAPSHOT_COMPLETE:
                self.positions[shard] = change.position
                self._recorder.write(WatchSnapshot(self.name, shard, _WATCH, change.position))
            case ChangeKind.PROGRESS:
                self.positions.update(told)
                self.write_progress()
            case _:
                self.positions[shard] = change.position
                self.observed += 1
                self._recorder.write(self._observation(change))

    def _observation(self, change: Change[Any]) -> Observation:
        is_assignment = self._kind is ObjectKind.ASSIGNMENT
        about = ObjectKind.TOPIC if is_assignment else self._kind
        epoch = change.value.epoch if isinstance(change.value, Assignment) else 0
        payload = f"{about.value}_{change.kind.value}"
        if change.kind is ChangeKind.POLICIES_SET:
            payload = "policy_cleared" if change.policies == NO_POLICIES else "policy_set"
        return Observation(
            self.name, change.shard_id, _WATCH, change.position, payload, change.name, epoch
        )


_METHODS: Mapping[ObjectKind, Callable[[Client, str], AsyncGenerator[Change[Any]]]] = {
    ObjectKind.NAMESPACE: lambda client, prefix: client.watch_namespaces(prefix=prefix),
    ObjectKind.TOPIC: lambda client, prefix: client.watch_topics(prefix=prefix),
    ObjectKind.ASSIGNMENT: lambda client, prefix: client.watch_assignments(prefix=prefix),
}


async def chaos_watch(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Watch until every watcher reached the command {"until": {shard: position}}.

    Raises:
        Unavailable: A watcher did not reach its position in time.
        MetadataError: A watcher failed.
    """
    with Recorder(Path(job["history"])) as recorder:
        watchers = _watchers(job, recorder)
        await run_until_first(
            *(one.run() for one in watchers),
            _tell(watchers, reporter),
            _wait_seen(watchers, reporter),
        )
        for one in watchers:
            one.write_progress()
    return {"observed": sum(one.observed for one in watchers)}


def _watchers(job: dict[str, Any], recorder: Recorder) -> list[_Watcher]:
    watchers: list[_Watcher] = [
        _Follower(job, shard, since, recorder, at_followers=at_followers)
        for shard, since in job["since"]
        for at_followers in (False, True)
    ]
    tenant = job["tenant"]
    watchers += [
        _PublicWatcher(job, f"public-{name}", kind, prefix, recorder)
        for name, kind, prefix in (
            ("topics", ObjectKind.TOPIC, f"persistent://{tenant}/"),
            ("hot-topics", ObjectKind.TOPIC, f"persistent://{tenant}/hot/"),
            ("namespaces", ObjectKind.NAMESPACE, f"{tenant}/"),
            ("assignments", ObjectKind.ASSIGNMENT, f"persistent://{tenant}/"),
        )
    ]
    return watchers


def _state_of(value: Any) -> dict[str, object]:
    """Return an object of a snapshot in the form of a history."""
    if isinstance(value, Assignment):
        return {
            "topic_id": value.topic_id,
            "epoch": value.epoch,
            "broker_id": value.broker_id,
            "session_id": value.session_id,
        }
    identity = getattr(value, "topic_id", "") or value.namespace_id
    return {"id": identity, "version": value.version, "properties": dict(value.properties)}


async def _wait_seen(watchers: Sequence[_Watcher], reporter: Reporter) -> None:
    command = await reporter.commands.get()
    until = {int(shard): position for shard, position in command["until"].items()}
    lacking: list[str] = []
    try:
        async with timeout(CATCH_UP_TIMEOUT_MS / 1000):
            while lacking := _behind(watchers, until):  # noqa: ASYNC110 - what comes wakes nobody
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise Unavailable(
            f"{', '.join(lacking)} had not seen everything after {CATCH_UP_TIMEOUT_MS} ms"
        ) from None


def _behind(watchers: Sequence[_Watcher], until: Mapping[int, int]) -> list[str]:
    return [
        one.name
        for one in watchers
        if any(position < until.get(shard, 0) for shard, position in one.positions.items())
    ]


async def _tell(watchers: Sequence[_Watcher], reporter: Reporter) -> None:
    while True:
        await asyncio.sleep(TICK_INTERVAL_MS / 1000)
        reporter.send({"tick": {"observed": sum(one.observed for one in watchers)}})
