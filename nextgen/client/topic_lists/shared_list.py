"""The list of one namespace's topics of one selection, shared by all its watchers.

    a shard begins ─▶ loading: pages are read, changes are kept ─▶ difference ─▶ live
                          ▲                                                       │
                          └──────────── changes of it were missed ◀───────────────┘

The shard's changes are watched BEFORE its names are read, so there is no gap between the two. A
page that was read as of a position holds the changes up to it: they are left out when they arrive.
If the pages of a shard are of several positions, the list is complete once the changes up to the
last of them have arrived. What a shard has after it was read again becomes one change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from nextgen.client.topic_lists.name_set import NameSet
from nextgen.client.topic_lists.name_snapshot import NO_NAMES, NameSnapshot, differences
from nextgen.client.topic_lists.namespace_changes import NamespaceChanges, ShardProgress
from nextgen.client.topic_lists.place import Place
from nextgen.client.topic_lists.selection import Selection
from nextgen.client.topic_lists.shard_names import NamesPage, Shards, read_names
from nextgen.client.topic_lists.tellers import Tellers
from nextgen.client.topic_lists.topic_changes import TopicChange
from nextgen.client.topic_lists.turns import Turns
from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded, Refused, Unavailable
from nextgen.kernel.limits.listing import (
    LIST_WALK_BYTES_MAX,
    TOPIC_LIST_CHANGE_NAMES_MAX,
    TOPIC_LIST_LOAD_MS_MAX,
    TOPIC_LIST_OVERHEAD_BYTES,
    TOPIC_LIST_PENDING_NAMES_MAX,
)
from nextgen.kernel.routing.names import NamespaceName
from nextgen.kernel.routing.system_topics import is_system_topic
from nextgen.kernel.routing.unit_names import unit_names
from nextgen.pulsar.topic_lists.ports import TopicListChange
from nextgen.tasks.background import cancel_and_wait, join
from nextgen.tasks.timeouts import timeout

_PAUSE_MS_MIN = 20
_PAUSE_MS_MAX = 1_000

_logger = structlog.get_logger(__name__)


class NoRoom(Overloaded):
    """There is no memory for a list, or for a watcher."""


class Charge(Protocol):
    """The memory that lists share."""

    def make_room(self, shared: SharedList) -> None:
        """Account for what the list takes by now.

        Raises:
            NoRoom: There is no room for it.
        """

    def account(self, shared: SharedList) -> None:
        """Account for what the list takes by now, whether or not there is room."""

    def caught_up(self) -> None:
        """Count a watcher that got a net difference."""


class _Load:
    """A shard whose names are being read. Its changes are kept until then."""

    def __init__(self) -> None:
        self.names = NameSet()
        self.positions: set[int] = set()
        """Of the pages that were read."""
        self.elsewhere: list[str] = []
        """Those of the names whose slots are at other shards: their topics were renamed."""
        self.changes: list[TopicChange] = []

    def take_changes(self, known: int) -> list[TopicChange]:
        """Remove the changes, and return those that pages as of ``known`` do not have."""
        changes, self.changes = self.changes, []
        return [change for change in changes if change.position > known]


class SharedList:
    """See the module. ``load`` it once; its owner passes it all changes of its namespace."""

    def __init__(
        self,
        namespace: NamespaceName,
        selection: Selection,
        changes: NamespaceChanges,
        shards: Shards,
        charge: Charge,
        shard_of_key: Callable[[str], int],
    ) -> None:
        """``shard_of_key``: who has the slot of a name, by the map that its shards are of."""
        self.namespace = namespace
        self.selection = selection
        self.changes = changes
        self.places: dict[Place, None] = {}
        self.used_at = 0.0
        """When it was last used, by the loop's clock."""
        self.charged_bytes = 0
        self.error: MetadataError | None = None
        self._names = NameSet()
        self._tellers = Tellers(
            lambda name: shard_of_key(selection.routing_key(name)),
            lambda name: name in self._names,
        )
        self._shards = shards
        self._charge = charge
        self._known: dict[int, int] = {}
        """By shard: the position up to which reading its names gave the changes. Without an entry
        nothing of the shard is in the list."""
        self._begun: set[int] = set()
        """Shards of which names may be in the list."""
        self._loads: dict[int, _Load] = {}
        self._loading: asyncio.Task[None] | None = None
        self._reloading: dict[int, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<SharedList {self.namespace.text} {self.selection!r} names={len(self._names)}>"

    def __len__(self) -> int:
        return len(self._names)

    @property
    def beginning(self) -> str:
        """The beginning of the names of all topics that it may have."""
        return self.selection.beginning

    @property
    def hash(self) -> str:
        return self._names.hash

    @property
    def text_bytes(self) -> int:
        """Bytes of the names, and one more for each."""
        return self._names.text_bytes

    @property
    def size_bytes(self) -> int:
        """Memory of the list without its watchers."""
        loading_bytes = sum(load.names.size_bytes for load in self._loads.values())
        fixed_bytes = TOPIC_LIST_OVERHEAD_BYTES + self.selection.size_bytes
        return self._names.size_bytes + loading_bytes + fixed_bytes

    @property
    def is_loaded(self) -> bool:
        """Whether every shard was read once."""
        return len(self._known) == len(self.changes.progress)

    @property
    def is_live(self) -> bool:
        """Whether it holds every shard's names, and all their changes as soon as they arrive."""
        return self.error is None and not self._loads and self.is_loaded and self.changes.is_current

    def sorted_names(self) -> list[str]:
        return list(self._names)

    def snapshot(self) -> NameSnapshot:
        return self._names.snapshot()

    def caught_up(self) -> None:
        self._charge.caught_up()

    async def load(self) -> None:
        """Read the names of all shards, unless that was done. Callers share the work.

        Raises:
            MetadataError: It was not possible in ``TOPIC_LIST_LOAD_MS_MAX``, or the list ended.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self._loading is None:
            self._loading = join(self._load_all())
        # Not shielded: a cancellation of the caller has to stay one, whatever the list does.
        await asyncio.wait({self._loading})
        if self.error is not None:
            raise self.error.with_traceback(None)
        self._loading.result()

    def place(self, leave: Callable[[Place], None], after: Place | None = None) -> Place:
        """Return a place at the list for another watcher. The list is loaded."""
        place = Place(self, leave, after)
        self.places[place] = None
        return place

    def end(self, error: MetadataError) -> None:
        """End all places. The list is of no use from here on."""
        if self.error is None:
            self.error = error
        for place in tuple(self.places):
            place.end(error)

    async def stop(self) -> None:
        """End what reads shards."""
        tasks = [*self._reloading.values(), *([self._loading] if self._loading else [])]
        await cancel_and_wait(*tasks)

    # As the namespace's changes call it -----------------------------------------------------------

    async def take(self, shard_id: int, changes: Sequence[TopicChange]) -> None:
        """Apply those of a shard's changes that match."""
        turns = Turns()
        matching: list[TopicChange] = []
        for change in changes:
            if self.selection.matches(change.base_name):
                narrowed = self.selection.narrowed(change)
                matching += [narrowed] if narrowed is not None else []
            await turns.end()
        if matching:
            self._take_matching(shard_id, matching)

    def lose(self, shard_id: int) -> None:
        """Read the names of a shard again, because changes of it were missed."""
        if shard_id in self._known and shard_id not in self._reloading and self.error is None:
            self._loads[shard_id] = _Load()
            self._reloading[shard_id] = join(self._reload(shard_id))

    def _take_matching(self, shard_id: int, changes: list[TopicChange]) -> None:
        load = self._loads.get(shard_id)
        if load is not None:
            load.changes += changes
        elif shard_id in self._known:
            known = self._known[shard_id]
            self._apply(shard_id, [each for each in changes if each.position > known])

    # Reading ------------------------------------------------------------------------------------

    async def _load_all(self) -> None:
        loads = [join(self._load(shard_id)) for shard_id in self.changes.progress]
        try:
            async with timeout(TOPIC_LIST_LOAD_MS_MAX / 1_000):
                await asyncio.gather(*loads)
        except TimeoutError as error:
            late = Unavailable(f"the list was not read in {TOPIC_LIST_LOAD_MS_MAX} ms")
            self.end(late)
            raise late from error
        except MetadataError as error:
            self.end(error)
            raise
        finally:
            await cancel_and_wait(*loads)

    async def _reload(self, shard_id: int) -> None:
        try:
            await self._load(shard_id)
        except MetadataError as error:
            self.end(error)
        finally:
            self._reloading.pop(shard_id, None)

    async def _load(self, shard_id: int) -> None:
        """Read a shard's names until that succeeds without a reset meanwhile."""
        progress = self.changes.progress[shard_id]
        pause_ms = _PAUSE_MS_MIN
        while True:
            resets = await progress.wait_begun()
            load = self._loads[shard_id] = _Load()
            try:
                await self._read_pages(shard_id, load)
                if await self._bring_up(shard_id, load, progress, resets):
                    return
            except (NoRoom, Refused, InvalidRequest):
                raise
            except MetadataError as error:
                _logger.info("a topic list was not read", shard=shard_id, error=str(error))
            await asyncio.sleep(pause_ms / 1_000)
            pause_ms = min(2 * pause_ms, _PAUSE_MS_MAX)

    async def _read_pages(self, shard_id: int, load: _Load) -> None:
        # Pages of all shards are there at a time, however many names of them match.
        share_bytes = max(1, LIST_WALK_BYTES_MAX // len(self.changes.progress))
        pages = read_names(
            self._shards,
            shard_id,
            self.namespace,
            self.selection,
            page_bytes_max=share_bytes,
        )
        async for page in pages:
            load.positions.add(page.position)
            names = await self._matching(page)
            load.names.add(names)
            load.elsewhere += self._tellers.elsewhere(names, shard_id)
            self._charge.make_room(self)

    async def _bring_up(
        self, shard_id: int, load: _Load, progress: ShardProgress, resets: int
    ) -> bool:
        """Bring the list to the names that were read, and to the changes since then.

        Return False if changes were missed meanwhile.
        """
        known = max(load.positions)
        is_of_one_position = len(load.positions) == 1
        if not is_of_one_position and not await progress.wait_position(known, resets):
            return False
        for change in load.take_changes(known if is_of_one_position else 0):
            load.names.add(change.created)
            load.elsewhere += self._tellers.elsewhere(change.created, shard_id)
            load.names.discard(change.deleted)
        # Before anything is awaited: what others take away meanwhile stays, if this shard has it.
        self._tellers.told_again(load.names.__contains__, load.elsewhere, shard_id)
        created, deleted = await self._difference(shard_id, load.names)
        if progress.resets != resets:
            return False
        await self._replace(shard_id, created, deleted)
        if progress.resets != resets:
            return False
        del self._loads[shard_id]
        self._known[shard_id] = known
        self._apply(shard_id, load.take_changes(known))
        self._charge.make_room(self)
        return True

    async def _matching(self, page: NamesPage) -> list[str]:
        turns = Turns()
        names: list[str] = []
        for name, partitions in page.topics:
            if self.selection.matches(name) and not is_system_topic(name):
                names += unit_names(name, partitions)
            await turns.end()
        return names

    async def _difference(self, shard_id: int, fresh: NameSet) -> tuple[list[str], list[str]]:
        """Return what was created and deleted in a shard that has the names ``fresh`` by now.

        The first time there is nothing to compare, so the names are added at once.
        """
        turns = Turns()
        is_first = shard_id not in self._begun
        self._begun.add(shard_id)
        before = NO_NAMES if is_first else self._names.snapshot()
        created: list[str] = []
        deleted: list[str] = []
        for new, gone in differences(before, fresh.snapshot()):
            if is_first:
                self._add(shard_id, new)
            else:
                created += new
                deleted += [name for name in gone if self._tellers.is_told_by(name, shard_id)]
            await turns.end()
        return created, deleted

    # Changing -----------------------------------------------------------------------------------

    async def _replace(self, shard_id: int, created: list[str], deleted: list[str]) -> None:
        """Apply what differs: as one change, or piece by piece while the places are behind."""
        if len(created) + len(deleted) <= TOPIC_LIST_PENDING_NAMES_MAX:
            self._publish(self._add(shard_id, created), self._discard(shard_id, deleted))
            return
        for place in self.places:
            place.fall_behind()
        turns = Turns()
        for names, apply in ((created, self._add), (deleted, self._discard)):
            for at in range(0, len(names), TOPIC_LIST_CHANGE_NAMES_MAX):
                changed = apply(shard_id, names[at : at + TOPIC_LIST_CHANGE_NAMES_MAX])
                # To places that were taken meanwhile.
                added, removed = (changed, ()) if names is created else ((), changed)
                self._publish(added, removed)
                await turns.end()

    def _add(self, shard_id: int, names: Sequence[str]) -> list[str]:
        """Add names that a shard tells; return those that are new."""
        self._tellers.told(names, shard_id)
        return self._names.add(names)

    def _discard(self, shard_id: int, names: Sequence[str]) -> list[str]:
        """Remove names that a shard tells no more and no other tells; return those."""
        return self._names.discard(self._tellers.taken_away(names, shard_id))

    def _apply(self, shard_id: int, changes: Sequence[TopicChange]) -> None:
        """Apply a shard's changes in order. Those that follow one another become one change, unless
        a name comes twice: then each of its changes is published."""
        created: list[str] = []
        deleted: list[str] = []
        touched: set[str] = set()
        for change in changes:
            names = change.created or change.deleted
            is_full = len(touched) + len(names) > TOPIC_LIST_CHANGE_NAMES_MAX
            if touched and (is_full or not touched.isdisjoint(names)):
                self._publish(self._add(shard_id, created), self._discard(shard_id, deleted))
                created, deleted, touched = [], [], set()
            created += change.created
            deleted += change.deleted
            touched.update(names)
        self._publish(self._add(shard_id, created), self._discard(shard_id, deleted))
        self._charge.account(self)

    def _publish(self, added: Sequence[str], removed: Sequence[str]) -> None:
        if not self.places or not (added or removed):
            return
        change = TopicListChange(self._names.hash, tuple(added), tuple(removed))
        for place in self.places:
            place.put(change)
