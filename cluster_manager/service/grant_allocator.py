"""Asking broker managers for grants, which is also how the directory is kept true.

A report that a session ended can get lost: its connection breaks, or the shard's leader dies
between the commit and the report. Then the directory would show a dead session until the broker
registers again. So whenever a shard's leader reports itself, which follows every such loss, the
sessions that the directory believes to live in its shard are asked for a grant again. That
changes nothing for a living session; the broker manager of one that ended says so.
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
    """Asks for grants during one term of leadership; requests for one session share an answer."""

    def __init__(self, leader_term: LeaderTerm, grantor: Grantor) -> None:
        self._leader_term = leader_term
        self._grantor = grantor
        self._asking: dict[tuple[str, str], asyncio.Task[int]] = {}
        self._checking: dict[int, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(CAPACITY_GRANTS_IN_FLIGHT_MAX)

    async def missing_grants(self) -> Grants:
        """Ask for every live broker's capacity that is not granted yet, all at once."""
        state = self._leader_term.pending
        missing = []
        for broker in state.directory.live():
            account = state.ledger.live_account(broker.broker_id, broker.session_id)
            if account is None or account.granted_units < broker.capacity_units:
                missing.append(broker)
        return await self._ask_all(missing)

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
        """Give up what is being asked for."""
        for task in (*self._asking.values(), *self._checking.values()):
            task.cancel()

    async def _check(self, brokers: Iterable[Broker]) -> None:
        await self._ask_all(brokers)

    async def _ask_all(self, brokers: Iterable[Broker]) -> Grants:
        """Return what was granted; a broker whose manager could not be asked is left out."""
        tasks = {broker: self._ask(broker) for broker in brokers}
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

    def _ask(self, broker: Broker) -> asyncio.Task[int]:
        """Return the task that asks for a session's capacity."""
        key = (broker.broker_id, broker.session_id)
        task = self._asking.get(key)
        if task is None:
            task = join(self._ask_one(broker))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._asked(key, done))
        return task

    def _asked(self, key: tuple[str, str], task: asyncio.Task[int]) -> None:
        self._asking.pop(key, None)
        # Everybody who waited for it may have gone away; the next one asks again.
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, MetadataError):
            _logger.error("asking for a grant broke", broker=key[0], exc_info=error)

    async def _ask_one(self, broker: Broker) -> int:
        async with self._slots:
            granted = await self._grantor.grant(
                broker_id=broker.broker_id,
                session_id=broker.session_id,
                units=broker.capacity_units,
            )
        # Whatever the answer says, the ledger's rule is that no grant exceeds the capacity.
        return min(granted, broker.capacity_units)
