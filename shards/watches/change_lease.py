"""A leased watch: its updates extend the time for which its subscriber may answer from its cache.

    renew: asked_at ──▶ a majority confirms the leader, at the commit position of that moment
                                │
    update that carries this position ──▶ confirmed_at = asked_at: usable for one time-to-live more

A confirmation goes out with the update that reaches its position, never earlier: the first pages of
a subscriber that catches up may end before a move that became effective without it. So a leader
that was replaced, or stalled, extends no lease, and all leases of its predecessors have ended when
the next leader has led for one time-to-live (ADR 0029). Updates come in order: once an event was
sent, no later update extends an answer that it replaced. After one time-to-live a subscriber has
either applied the event or stopped answering. ``EffectiveWrites`` rests on that: its wait for a
leased subscription ends then.

A subscriber that answers nothing says so with its renewal, and its lease rests: it is confirmed
every ``ASSIGNMENT_REST_MS``, as a sign of life, and so ends in between. Changes are sent and
acknowledged as ever. A renewal that says otherwise is confirmed at once (ADR 0128).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from nextgen.client.changes.index import Change
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS, ASSIGNMENT_UPDATE_MS
from nextgen.kernel.limits.stream import ASSIGNMENT_REST_MS, WATCH_EVENTS_PER_UPDATE_MAX
from nextgen.tasks.background import keep
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import WatchRenew, WatchShardUpdate
from shards.watches.change_delivery import NOT_DUE, Delivery
from shards.watches.change_source import ChangeSource, WatchOwner
from shards.watches.change_watch import ChangeWatch, Stage
from shards.wire.leased_form import (
    CREATIONS_SECONDS,
    UNTIL_THE_NEXT_UPDATE,
    Creations,
    LeasedForm,
    creations_apart,
    is_release,
)

_UPDATE_SECONDS = ASSIGNMENT_UPDATE_MS / 1000
_REST_SECONDS = ASSIGNMENT_REST_MS / 1000

_CONFIRMATIONS_MAX = ASSIGNMENT_TTL_MS // ASSIGNMENT_UPDATE_MS
"""Confirmations that wait until their subscriber has caught up. Older ones are dropped: the time
that they give is over."""


class LeasedWatch(Delivery[LeasedForm]):
    """A leased watch, its delivery and its lease. Begins at once; ``close`` it.

    Has no snapshot: without a position to resume from it begins with the present.

    Raises:
        NotLeader: This replica does not lead.
    """

    def __init__(self, watch: ChangeWatch, source: ChangeSource, stream: WatchOwner) -> None:
        super().__init__(source, stream, watch.watch_id)
        self.watch = watch
        self.acked = 0
        """Everything up to it has taken effect at the subscriber."""
        self._forms = source.leased_forms
        self._asked_at_ms = 0
        """The subscriber's clock when its last message left."""
        self._asked_at: float | None = None
        """This process's clock when that message arrived."""
        self._confirmed_at_ms = 0
        """The same, of the latest message behind which leadership was confirmed at a position that
        the updates have reached."""
        self._unreached: deque[tuple[int, int]] = deque(maxlen=_CONFIRMATIONS_MAX)
        """Confirmations beyond the last update: their position, and when their message left."""
        self._creations_wait_s = CREATIONS_SECONDS
        self._rests = False
        """Whether the subscriber answers nothing, by its last message."""
        self._woken = asyncio.Event()
        self._is_first = True
        self._begins_anew = False
        """Whether the next update says that what precedes it may be missing."""
        self._subscription = source.join(self, is_leased=True)
        source.leased[self] = None
        self._begin(watch.from_position)
        self._confirming = keep("change_lease", self._confirm)

    @property
    def subscriber_id(self) -> str:
        return self._stream.subscriber_id

    # The subscriber's side --------------------------------------------------------------------

    def renew(self, renew: WatchRenew) -> None:
        """Apply an acknowledgement, and request a confirmation that this replica still leads."""
        self._asked_at_ms = renew.asked_at_ms
        self._asked_at = asyncio.get_running_loop().time()
        self._creations_wait_s = (
            UNTIL_THE_NEXT_UPDATE if renew.creations_may_wait else CREATIONS_SECONDS
        )
        if self._rests and not renew.may_rest:
            self._woken.set()
        self._rests = renew.may_rest
        if self._backlog:
            # Creations may be in it that waited for the next regular update.
            self._send_within(self._creations_wait_s)
        if renew.acked_position > self.acked:
            self.acked = renew.acked_position
            self._subscription.heard()

    def close(self) -> None:
        """End the watch. Its lease counts for one more time-to-live."""
        super().close()
        self._confirming.cancel()
        self._source.leased.pop(self, None)
        self._subscription.leave()

    # Effective writes' side -------------------------------------------------------------------

    def has_taken_in(self, changes: Collection[Change], position: int) -> bool:
        """Return whether ``position`` was acknowledged, or the lease covers none of ``changes``.

        A lease covers answers about the objects that its filter selects. These answers depend on
        tenants, namespaces and topics too, so it covers every change of those that may affect them.
        """
        if self.acked >= position:
            return True
        return bool(changes) and not any(map(self.watch.selection.may_depend_on, changes))

    def fail(self, error: MetadataError) -> None:
        """End the watch, and no other of its stream, with ``error``."""
        self._stream.end_watch(self.watch, error)

    # Delivery ---------------------------------------------------------------------------------

    def offer(self, event: Event) -> None:
        form = self._forms.of(event)
        if self._add(form):
            self._send_within(form.may_wait_s)

    def offer_creations(self, creations: Creations) -> None:
        """Take in the next creations if this watch names them. They may be offered again."""
        named = self._named(creations)
        if named is not None and self._add(named):
            self._send_within(self._creations_wait_s)

    def _next_due_at(self) -> float:
        return NOT_DUE  # The next confirmation makes it due.

    def _sent_of(self, events: Iterable[Event]) -> Sequence[LeasedForm]:
        forms: list[LeasedForm] = []
        for run, creations in creations_apart(events):
            if creations is None or not self.watch.names_creations:
                forms += [
                    self._forms.of(event)
                    for event in run
                    if is_release(event) or self._is_wanted(event)
                ]
            elif (named := self._named(creations)) is not None:
                forms.append(named)
        return forms

    def _first_position(self, sent: LeasedForm) -> int:
        return sent.first_position if isinstance(sent, Creations) else sent.position

    def _begin_again(self) -> None:
        self._source.metrics.resets.inc()
        self._begins_anew = True

    def _fill(self, update: WatchShardUpdate, events: Sequence[LeasedForm]) -> None:
        update.names_creations = self.watch.names_creations
        for form in events:
            if isinstance(form, Creations):
                update.created.extend(form.names)
            else:
                update.events.append(form.event)

    def _complete(self, update: WatchShardUpdate) -> None:
        while self._unreached and self._unreached[0][0] <= update.position:
            _, self._confirmed_at_ms = self._unreached.popleft()
        update.confirmed_at_ms = self._confirmed_at_ms
        update.reset = self._begins_anew
        update.ttl_ms = ASSIGNMENT_TTL_MS if self._is_first else 0
        self._is_first = self._begins_anew = False

    # Inside -----------------------------------------------------------------------------------

    def _begin(self, position: int) -> None:
        present = self._source.log.commit_position
        # A position beyond the present is of another log, as before a restore of a backup.
        is_resumed = 0 < position <= present
        self._begins_anew = not is_resumed
        self.start(position if is_resumed else present)
        # It still has the events that it applied before, here or at another leader.
        self.acked = self.position
        self.watch.since = self.position
        self.watch.delivery = self
        self.watch.stage = Stage.LIVE

    def _named(self, creations: Creations) -> Creations | None:
        """Return those of ``creations`` that this watch names, None for none."""
        if not self.watch.names_creations:
            return None
        prefix = self.watch.selection.prefix
        if not prefix:
            return creations
        names = tuple([name for name in creations.names if name.startswith(prefix)])
        return creations._replace(names=names) if names else None

    def _send_within(self, may_wait_s: float) -> None:
        """Send what was added within this time, with others that come meanwhile."""
        if not may_wait_s or self._backlog_events >= WATCH_EVENTS_PER_UPDATE_MAX:
            self._send_now()
        elif may_wait_s < UNTIL_THE_NEXT_UPDATE and self.due_at == NOT_DUE:
            self.due_at = asyncio.get_running_loop().time() + may_wait_s
            self._stream.wake()

    async def _confirm(self) -> None:
        """Have a majority confirm this leader repeatedly; an update is due after each
        confirmation."""
        while True:
            self._woken.clear()
            asked_at_ms = self._asked_at_ms
            try:
                # A heartbeat that left since then has mostly been answered by now.
                await self._source.log.read_index(asked_at=self._asked_at)
            except MetadataError as error:
                self.fail(error)
                return
            position = self._source.log.commit_position
            if asked_at_ms > self._confirmed_at_ms:
                self._unreached.append((position, asked_at_ms))
            self.send_at(position)
            await self._pause()

    async def _pause(self) -> None:
        """Wait until the next confirmation is due, or until a rest ends."""
        # Before its first confirmation a subscriber does not know that the lease stands.
        rests = self._rests and self._confirmed_at_ms > 0
        with contextlib.suppress(TimeoutError):
            async with timeout(_REST_SECONDS if rests else _UPDATE_SECONDS):
                await self._woken.wait()
