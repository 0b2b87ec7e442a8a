"""Reads one shard for a backup: a snapshot into a file, and the events behind it.

replica ──▶ snapshot as of p, page by page ──▶ file
log     ──▶ events behind p, up to q       ──▶ memory
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from nextgen.backup.cut import ShardTail, is_source, needed_in
from nextgen.backup.files import ItemsWriter, read_pages
from nextgen.backup.manifest import BackupFile, Counts
from nextgen.backup.objects import (
    EVENT_TYPES,
    KIND_NAMES,
    KINDS,
    Key,
    apply,
    forget_consumers,
    id_as_parent,
    keys_of,
    parents_of,
    tail_of,
)
from nextgen.client.changes.shard_watch import ShardWatch, WatchLink
from nextgen.client.log.reader import ShardLogReader
from nextgen.export.stores.store import Store
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.kernel.limits.bulk import BACKUP_TAIL_EVENTS_MAX
from nextgen.tasks.background import cancel_and_wait, start
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item

PATIENCE_S = 60.0
"""A shard that sends nothing for so long has no replica that could be read."""

CHANGED_PER_PAGE = 500

OnItems = Callable[[int], None]
"""Called with the number of objects that were read."""


@dataclass(slots=True)
class ShardSnapshot:
    """A shard's snapshot in a file, and the events behind it that were read so far."""

    shard_id: int
    file: BackupFile
    tail: ShardTail
    counts: Counter[int]
    """Objects of the snapshot by kind."""
    events: list[Event] = field(default_factory=list)
    read_to: int = 0
    """All events up to here were read; at least the snapshot's position."""


class SnapshotListener:
    """Writes what a watch delivers. A watch that begins again discards what was written."""

    def __init__(self, begin: Callable[[], ItemsWriter], on_items: OnItems) -> None:
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.writer: ItemsWriter | None = None
        self.collected = Collected()
        self.heard_at = 0.0
        """On the event loop's clock."""
        self._begin = begin
        self._on_items = on_items

    def on_reset(self) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        if self.done.done():
            return
        self._on_items(-self.collected.total)
        if self.writer is not None:
            self.writer.discard()
        self.writer, self.collected = self._begin(), Collected()

    def on_items(self, items: Sequence[Item]) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        if self.done.done():
            return
        assert self.writer is not None, "a snapshot begins with a reset"
        for item in items:
            forget_consumers(item)
        try:
            self.writer.write(items)
        except OSError as error:
            self.done.set_exception(error)
            return
        self.collected.add(items)
        self._on_items(len(items))

    def on_snapshot_complete(self, position: int) -> None:
        if not self.done.done():
            self.done.set_result(position)

    def on_events(self, events: Sequence[Event]) -> None:
        """Ignore them: the log is read instead, with the gates of parents."""

    def on_position(self, position: int) -> None:
        """Ignore it."""

    def on_ended(self, error: MetadataError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Collected:
    """What the cut has to know of a snapshot, without its objects."""

    def __init__(self) -> None:
        self.born: set[str] = set()
        self.needed: set[str] = set()
        self.counts: Counter[int] = Counter()

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, items: Sequence[Item]) -> None:
        for item in items:
            self.counts[item.kind] += 1
            self.needed.update(parents_of(item))
            self.born.add(id_as_parent(item))

    def tail(self, position: int) -> ShardTail:
        return ShardTail(position, self.born - {""}, self.needed)


def path_of(shard_id: int, position: int, kind: str = "items") -> str:
    return f"shard-{shard_id:05d}-{position:020d}.{kind}"


async def take_snapshot(
    link: WatchLink,
    shard_id: int,
    subscriber_id: str,
    begin: Callable[[], ItemsWriter],
    on_items: OnItems,
) -> ShardSnapshot:
    """Write a snapshot of all tenants, namespaces, topics and layouts of a shard, as of one
    position.

    Any replica serves it. One that is lost is replaced, and the snapshot begins again.

    Raises:
        Unavailable: No replica sent anything for ``PATIENCE_S``.
        OSError: The file cannot be written.
    """
    listener = SnapshotListener(begin, on_items)
    watch = ShardWatch(shard_id, subscriber_id, link, at_leader=False)
    watch.add(listener, kinds=KINDS)
    running = start("backup_watch", watch.run())
    try:
        while not listener.done.done():
            heard = listener.heard_at = asyncio.get_running_loop().time()
            await asyncio.wait({listener.done}, timeout=PATIENCE_S)
            if listener.heard_at == heard and not listener.done.done():
                raise Unavailable(f"no replica of shard {shard_id} sends a snapshot")
        position = listener.done.result()
        assert listener.writer is not None, "a complete snapshot was begun"
        writer, listener.writer = listener.writer, None
        file = writer.publish(path_of(shard_id, position))
        collected = listener.collected
        return ShardSnapshot(
            shard_id, file, collected.tail(position), collected.counts, read_to=position
        )
    finally:
        await cancel_and_wait(running)
        if listener.writer is not None:
            listener.writer.discard()


def find_sources(store: Store, shards: Collection[ShardSnapshot]) -> None:
    """Note in each snapshot which sources of shadows it has.

    That takes a second look at the files, as there may be too many topics to keep their names, and
    only if there are shadows.

    Raises:
        BackupUnusable: A file is damaged.
        OSError: The store cannot be read.
    """
    sources = {each for each in needed_in(shard.tail for shard in shards) if is_source(each)}
    for shard in shards if sources else ():
        for items in read_pages(store, shard.file):
            shard.tail.born.update(
                item.name for item in items if item.kind == KIND_TOPIC and item.name in sources
            )


def reopen_snapshot(store: Store, shard_id: int, position: int, file: BackupFile) -> ShardSnapshot:
    """Return what ``take_snapshot`` returned, from a file of an interrupted backup.

    Raises:
        BackupUnusable: The file is damaged.
        OSError: The store cannot be read.
    """
    collected = Collected()
    for items in read_pages(store, file):
        collected.add(items)
    return ShardSnapshot(
        shard_id, file, collected.tail(position), collected.counts, read_to=position
    )


async def read_tail(endpoints: Sequence[str], shard: ShardSnapshot, position: int) -> None:
    """Read the events behind the snapshot, or behind what was read, up to ``position``.

    Raises:
        PositionCompacted: They are not in the log any more: take another snapshot.
        Overloaded: There are more than ``BACKUP_TAIL_EVENTS_MAX``.
        MetadataError: No replica answers.
    """
    reader = ShardLogReader(endpoints, shard.shard_id, types=EVENT_TYPES)
    if shard.read_to >= position:
        return
    async with aclosing(reader.pages(shard.read_to + 1)) as pages:
        async for page in pages:
            shard.events += page.events
            shard.read_to = page.next_position - 1
            if len(shard.events) > BACKUP_TAIL_EVENTS_MAX:
                raise Overloaded(
                    f"shard {shard.shard_id} had more than {BACKUP_TAIL_EVENTS_MAX} changes while "
                    "it was read: take the backup when less is written"
                )
            if shard.read_to >= position:
                break
    shard.tail.events = tail_of(shard.events)


def changed_items(store: Store, shard: ShardSnapshot, cut: int) -> tuple[list[Item], Counts]:
    """Return the objects that the events up to ``cut`` changed, as of then, and all counts.

    An object that is gone has no value.
    """
    events = [event for event in shard.events if event.position <= cut]
    present: dict[Key, Item] = {}
    touched = {key for event in events for key in keys_of(event)}
    if touched:
        for items in read_pages(store, shard.file):
            for item in items:
                if (item.kind, item.name) in touched:
                    present[item.kind, item.name] = item
    counts = Counter(shard.counts)
    counts.subtract(Counter(kind for kind, _ in present))
    for event in events:
        for key in keys_of(event):
            apply(present.setdefault(key, Item(kind=key[0], name=key[1])), event)
    changed = [present[key] for key in sorted(present)]
    for item in changed:
        forget_consumers(item)
    counts.update(item.kind for item in changed if item.WhichOneof("value"))
    return changed, Counts(**{name: counts[kind] for kind, name in KIND_NAMES.items()})


def write_changed(store: Store, shard: ShardSnapshot, cut: int) -> tuple[BackupFile | None, Counts]:
    """Write the file of ``changed_items``, none if there are none; return the counts, too."""
    changed, counts = changed_items(store, shard, cut)
    if not changed:
        return None, counts
    writer = ItemsWriter(store, f"changed-{shard.shard_id:05d}")
    try:
        for start_at in range(0, len(changed), CHANGED_PER_PAGE):
            writer.write(changed[start_at : start_at + CHANGED_PER_PAGE])
        return writer.publish(path_of(shard.shard_id, cut, "changed")), counts
    except BaseException:
        writer.discard()
        raise
