"""A sorted set of topic names that takes little more memory than their bytes, and knows its hash.

    NameSet ─▶ runs of up to 64 blocks ─▶ blocks of up to 16 KiB ─▶ NUL a NUL b NUL c …

Names have no control characters, so NUL divides them. A change rewrites one block and computes the
checksum of that block alone; those of blocks and runs are combined (``checksum``), with the commas
that Pulsar's hash has between names. The order is Pulsar's: that of UTF-16 code units.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakSet

from nextgen.client.topic_lists.checksum import Part, part_of, without_beginning
from nextgen.client.topic_lists.checksum_tree import ChecksumTree
from nextgen.client.topic_lists.name_snapshot import DIVIDER, NameSnapshot, block_of, names_of
from nextgen.pulsar.topic_lists.hash import hash_text, in_order, sort_key

BLOCK_BYTES_MAX = 16 * 1024
"""A block is rewritten and its checksum computed at each change: some 20 microseconds."""
RUN_BLOCKS_MAX = 64
BLOCK_OVERHEAD_BYTES = 800
"""Memory of a block besides its names, its part of a run and of two trees included."""

_COMMA = b","
_FEW = 4


class _Run:
    """Blocks that follow one another."""

    __slots__ = ("blocks", "firsts", "tree")

    def __init__(self) -> None:
        self.firsts: list[bytes] = []
        """Of each block the sort key of its first name."""
        self.blocks: list[bytes] = []
        self.tree = ChecksumTree()

    def insert(self, index: int, names: Sequence[str]) -> int:
        """Insert a block; return its bytes."""
        block = block_of(names)
        self.firsts.insert(index, sort_key(names[0]))
        self.blocks.insert(index, block)
        self.tree.insert(index, _part_of(block))
        return len(block)

    def replace(self, index: int, names: Sequence[str]) -> int:
        """Replace a block; return by how many bytes it grew."""
        block = block_of(names)
        grown = len(block) - len(self.blocks[index])
        self.firsts[index] = sort_key(names[0])
        self.blocks[index] = block
        self.tree.replace(index, _part_of(block))
        return grown

    def remove(self, index: int) -> int:
        """Remove a block; return its bytes."""
        removed = len(self.blocks[index])
        del self.firsts[index], self.blocks[index]
        self.tree.remove(index)
        return removed

    def cut(self, index: int) -> _Run:
        """Return the blocks from ``index`` on as a run of their own."""
        behind = _Run()
        behind.firsts, self.firsts = self.firsts[index:], self.firsts[:index]
        behind.blocks, self.blocks = self.blocks[index:], self.blocks[:index]
        for part in self.tree.cut(index):
            behind.tree.insert(len(behind.tree), part)
        return behind


class NameSet:
    """See the module. Not to be changed while it is iterated over."""

    __slots__ = (
        "_blocks",
        "_changed",
        "_count",
        "_firsts",
        "_hash",
        "_name_bytes",
        "_replaced_bytes",
        "_runs",
        "_snapshot",
        "_snapshots",
        "_tree",
    )

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._firsts: list[bytes] = []
        """Of each run the sort key of its first name."""
        self._tree = ChecksumTree()
        self._changed: set[_Run] = set()
        """Runs whose checksum in the tree is out of date."""
        self._hash: str | None = None
        self._count = 0
        self._blocks = 0
        self._name_bytes = 0
        self._snapshot: NameSnapshot | None = None
        """Of the present, if one was made since the last change."""
        self._snapshots: WeakSet[NameSnapshot] = WeakSet()
        self._replaced_bytes = 0
        """Blocks that were replaced while somebody held a snapshot."""

    def __repr__(self) -> str:
        return f"<NameSet names={self._count} blocks={self._blocks}>"

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Memory that the set takes, with what its snapshots keep of earlier blocks."""
        size_bytes = self._name_bytes + self._blocks * BLOCK_OVERHEAD_BYTES
        if not self._replaced_bytes:
            return size_bytes
        # Many blocks may have been replaced after the snapshot, and more than once.
        kept_bytes = sum(snapshot.text_bytes for snapshot in self._snapshots)
        if not kept_bytes:
            self._replaced_bytes = 0
        return size_bytes + min(kept_bytes, self._replaced_bytes)

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all names, with one more for each."""
        return self._name_bytes

    @property
    def hash(self) -> str:
        """See ``topics_hash``. Computed when first asked for after a change."""
        if self._hash is None:
            if self._changed:
                for index, run in enumerate(self._runs):
                    if run in self._changed:
                        self._tree.replace(index, run.tree.whole())
                self._changed.clear()
            self._hash = hash_text(self._checksum())
        return self._hash

    def __contains__(self, name: str) -> bool:
        if not self._runs:
            return False
        run, index = self._place(sort_key(name))
        return DIVIDER + name.encode() + DIVIDER in run.blocks[index] + DIVIDER

    def __iter__(self) -> Iterator[str]:
        for run in self._runs:
            for block in run.blocks:
                yield from names_of(block)

    def snapshot(self) -> NameSnapshot:
        """Return the names as they are; the same object until the next change."""
        if self._snapshot is None:
            blocks = tuple(block for run in self._runs for block in run.blocks)
            self._snapshot = NameSnapshot(self.hash, blocks, self._count, self._name_bytes)
            self._snapshots.add(self._snapshot)
        return self._snapshot

    def add(self, names: Iterable[str]) -> list[str]:
        """Add ``names``; return those that were not there, sorted."""
        wanted = in_order(set(names))
        added: list[str] = []
        at = 0
        while at < len(wanted):
            at = self._add_to_block(wanted, at, added)
        self._count += len(added)
        return added

    def discard(self, names: Iterable[str]) -> list[str]:
        """Remove ``names``; return those that were there, sorted."""
        wanted = in_order(set(names))
        removed: list[str] = []
        at = 0
        while at < len(wanted) and self._runs:
            at = self._discard_from_block(wanted, at, removed)
        self._count -= len(removed)
        return removed

    # Inside -----------------------------------------------------------------------------------

    def _change(self, replaced_bytes: int = 0) -> None:
        self._hash = None
        self._snapshot = None
        if self._snapshots:
            self._replaced_bytes += replaced_bytes

    def _checksum(self) -> int:
        if not self._count:
            return 0
        whole = self._tree.whole()
        return without_beginning(part_of(_COMMA), whole.checksum, self._name_bytes - 1)

    def _place(self, key: bytes) -> tuple[_Run, int]:
        run = self._runs[max(0, bisect_right(self._firsts, key) - 1)]
        return run, max(0, bisect_right(run.firsts, key) - 1)

    def _next_first(self, run_index: int, index: int) -> bytes | None:
        run = self._runs[run_index]
        if index + 1 < len(run.firsts):
            return run.firsts[index + 1]
        return self._firsts[run_index + 1] if run_index + 1 < len(self._runs) else None

    def _group(self, wanted: Sequence[str], at: int) -> tuple[int, int, int]:
        """Return the run and the block of the name at ``at``, and where the names of that block
        end."""
        key = sort_key(wanted[at])
        run_index = max(0, bisect_right(self._firsts, key) - 1)
        index = max(0, bisect_right(self._runs[run_index].firsts, key) - 1)
        limit = self._next_first(run_index, index)
        end = len(wanted) if limit is None else bisect_left(wanted, limit, lo=at + 1, key=sort_key)
        return run_index, index, end

    def _add_to_block(self, wanted: Sequence[str], at: int, added: list[str]) -> int:
        if not self._runs:
            first = wanted[0]
            self._change()
            run = _Run()
            self._name_bytes += run.insert(0, [first])
            self._insert_run(0, run)
            self._blocks += 1
            added.append(first)
            return 1
        run_index, index, end = self._group(wanted, at)
        run = self._runs[run_index]
        names = names_of(run.blocks[index])
        new = _insert_into(names, wanted[at:end])
        if new:
            added += new
            self._store(run_index, index, names)
        return end

    def _discard_from_block(self, wanted: Sequence[str], at: int, removed: list[str]) -> int:
        run_index, index, end = self._group(wanted, at)
        run = self._runs[run_index]
        doomed = set(wanted[at:end])
        names = names_of(run.blocks[index])
        kept = [name for name in names if name not in doomed]
        if len(kept) < len(names):
            removed += [name for name in names if name in doomed]
            self._store(run_index, index, kept)
        return end

    def _store(self, run_index: int, index: int, names: list[str]) -> None:
        """Replace a block by its new content."""
        run = self._runs[run_index]
        self._change(len(run.blocks[index]))
        if not names:
            self._name_bytes -= run.remove(index)
            self._blocks -= 1
        else:
            pieces = _pieces(names)
            self._name_bytes += run.replace(index, pieces[0])
            for offset, piece in enumerate(pieces[1:], 1):
                self._name_bytes += run.insert(index + offset, piece)
            self._blocks += len(pieces) - 1
            if len(pieces) == 1:
                self._merge_small(run, index)
        self._changed.add(run)
        if not run.blocks:
            self._remove_run(run_index)
            return
        self._firsts[run_index] = run.firsts[0]
        while len(run.blocks) > RUN_BLOCKS_MAX:
            behind = run.cut(len(run.blocks) - RUN_BLOCKS_MAX // 2)
            self._insert_run(run_index + 1, behind)

    def _merge_small(self, run: _Run, index: int) -> None:
        """Join a block that has shrunk with those beside it that are small too."""
        if len(run.blocks[index]) > BLOCK_BYTES_MAX // 8:
            return
        for left in (index, index - 1):
            if not 0 <= left < len(run.blocks) - 1:
                continue
            if len(run.blocks[left]) + len(run.blocks[left + 1]) < BLOCK_BYTES_MAX // 2:
                names = names_of(run.blocks[left]) + names_of(run.blocks[left + 1])
                self._name_bytes -= run.remove(left + 1)
                self._name_bytes += run.replace(left, names)
                self._blocks -= 1

    def _insert_run(self, index: int, run: _Run) -> None:
        self._runs.insert(index, run)
        self._firsts.insert(index, run.firsts[0])
        self._tree.insert(index, run.tree.whole())
        self._changed.add(run)

    def _remove_run(self, index: int) -> None:
        self._changed.discard(self._runs[index])
        del self._runs[index], self._firsts[index]
        self._tree.remove(index)


def _part_of(block: bytes) -> Part:
    return part_of(block.replace(DIVIDER, _COMMA))


def _insert_into(names: list[str], wanted: Sequence[str]) -> list[str]:
    """Insert the sorted ``wanted`` into the sorted ``names``; return those that were not there."""
    if len(wanted) > _FEW:
        known = set(names)
        new = [name for name in wanted if name not in known]
        if new:
            names[:] = in_order(names + new)
        return new
    new = []
    for name in wanted:
        index = bisect_left(names, sort_key(name), key=sort_key)
        if index == len(names) or names[index] != name:
            names.insert(index, name)
            new.append(name)
    return new


def _pieces(names: list[str]) -> list[list[str]]:
    """Divide the names of a block that is too big into equal parts of at most half of one."""
    size_bytes = sum(map(len, names)) + len(names)
    if size_bytes <= BLOCK_BYTES_MAX // 4 or len(block_of(names)) <= BLOCK_BYTES_MAX:
        return [names]
    pieces = 2 * len(block_of(names)) // BLOCK_BYTES_MAX + 1
    share = -(-len(names) // pieces)
    return [names[start : start + share] for start in range(0, len(names), share)]
