"""Requests grants of capacity from broker managers; that also corrects the broker directory.

The report of a session's end can get lost: its connection breaks, or the shard's leader dies
between the commit and the report. The directory would then show a dead session until the broker
registers again. Every such loss is followed by a report of the shard's leader. On each of those
reports the grants of that shard's live sessions are requested again. A live session is not changed
by it; for an ended one the broker manager answers that it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import structlog

from cluster_manager.domain.broker_directory import Broker
from cluster_manager.ports import Grantor
from cluster_manager.service.leader_term import LeaderTerm
from nextgen.kernel.errors import MetadataError, SessionExpired
from nextgen.kernel.limits.cluster import CAPACITY_GRANTS_IN_FLIGHT_MAX
from nextgen.tasks.background import join, start

Grants = dict[tuple[str, str], int]
"""Units granted in all, by broker id and session id."""

_logger = structlog.get_logger(__name__)


class GrantAllocator:
    """Requests grants during one term of leadership. Requests for one session share an answer."""

    def __init__(self, leader_term: LeaderTerm, grantor: Grantor) -> None:
        self._leader_term = leader_term
        self._grantor = grantor
        self._requests: dict[tuple[str, str], asyncio.Task[int]] = {}
        self._checking: dict[int, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(CAPACITY_GRANTS_IN_FLIGHT_MAX)

    async def missing_grants(self) -> Grants:
        """Request all capacity of live brokers that is not granted yet, concurrently."""
        state = self._leader_term.pending
        missing = []
        for broker in state.directory.live():
            account = state.ledger.live_account(broker.broker_id, broker.session_id)
            if account is None or account.granted_units < broker.capacity_units:
                missing.append(broker)
        return await self._request_all(missing)

    def check_sessions(self, shard_id: int) -> None:
        """Have the shard's broker manager confirm its sessions, in the background.

        One check of a shard at a time: while one runs, another is not started.
        """
        shard_map = self._leader_term.committed.shard_map
        if shard_map is None or shard_id in self._checking:
            return
        brokers = [
            broker
            for broker in self._leader_term.pending.directory.live()
            if shard_map.table.shard_for_key(broker.broker_id) == shard_id
        ]
        if brokers:
            task = start("grant_check", self._check(brokers))
            self._checking[shard_id] = task
            task.add_done_callback(lambda _: self._checking.pop(shard_id, None))

    def stop(self) -> None:
        """Cancel the requests in flight."""
        for task in (*self._requests.values(), *self._checking.values()):
            task.cancel()

    async def _check(self, brokers: Iterable[Broker]) -> None:
        await self._request_all(brokers)

    async def _request_all(self, brokers: Iterable[Broker]) -> Grants:
        """Return the grants, without the brokers whose manager could not be reached."""
        tasks = {broker: self._request(broker) for broker in brokers}
        if tasks:
            await asyncio.wait(tasks.values())
        grants: Grants = {}
        for broker, task in tasks.items():
            error = None if task.cancelled() else task.exception()
            if task.cancelled():
                continue
            if error is None:
                grants[broker.broker_id, broker.session_id] = task.result()
            elif isinstance(error, SessionExpired):
                self._end_session(broker)
            elif isinstance(error, MetadataError):
                _logger.warning("capacity not granted", broker=broker.broker_id, why=str(error))
            else:
                raise error
        return grants

    def _end_session(self, broker: Broker) -> None:
        _logger.info("session found ended", broker=broker.broker_id, session=broker.session_id)
        try:
            self._leader_term.record_broker(replace(broker, is_live=False))
        except MetadataError as error:
            # The next leader's report, or the next request for capacity, finds it again.
            _logger.info("end of session not recorded", broker=broker.broker_id, why=str(error))

    def _request(self, broker: Broker) -> asyncio.Task[int]:
        """Return the task that requests a session's capacity."""
        key = (broker.broker_id, broker.session_id)
        task = self._requests.get(key)
        if task is None:
            task = join(self._request_one(broker))
            self._requests[key] = task
            task.add_done_callback(lambda done: self._requested(key, done))
        return task

    def _requested(self, key: tuple[str, str], task: asyncio.Task[int]) -> None:
        self._requests.pop(key, None)
        # Every caller may have been cancelled meanwhile; the next one requests it again.
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, MetadataError):
            _logger.error("request for a grant broke", broker=key[0], exc_info=error)

    async def _request_one(self, broker: Broker) -> int:
        async with self._slots:
            granted = await self._grantor.grant(
                broker_id=broker.broker_id,
                session_id=broker.session_id,
                units=broker.capacity_units,
            )
        # The ledger's rule holds for any answer: no grant exceeds the capacity.
        return min(granted, broker.capacity_units)
