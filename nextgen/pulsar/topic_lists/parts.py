"""Lists and changes of them in parts that fit into a frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nextgen.pulsar.topic_lists.ports import TopicListChange

NAME_BYTES_OVERHEAD = 3
"""What a name takes in a command besides its own bytes."""


def parts_of(
    change: TopicListChange, bytes_max: int
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield what is created and deleted, in parts; deletions come first if there are several."""
    if size_of(change.names, bytes_max) <= bytes_max:
        yield change.created, change.deleted
        return
    for names in cut(change.deleted, bytes_max):
        yield (), names
    for names in cut(change.created, bytes_max):
        yield names, ()


def cut(names: Iterable[str], bytes_max: int) -> Iterator[list[str]]:
    """Yield ``names`` in parts. A name that is longer than a part may be is one of its own."""
    part: list[str] = []
    size = 0
    for name in names:
        name_bytes = len(name.encode()) + NAME_BYTES_OVERHEAD
        if part and size + name_bytes > bytes_max:
            yield part
            part, size = [], 0
        part.append(name)
        size += name_bytes
    if part:
        yield part


def size_of(names: Iterable[str], enough_bytes: int) -> int:
    """Return the bytes of names in a command; any number above ``enough_bytes`` if it is more."""
    size_bytes = 0
    for name in names:
        size_bytes += len(name.encode()) + NAME_BYTES_OVERHEAD
        if size_bytes > enough_bytes:
            break
    return size_bytes
