"""Messages in chunks, from the entries of one segment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nextgen.client.st.consuming.unpacking import Unpacked
from nextgen.client.st.domain.chunks import Chunk, Chunks, Entry
from nextgen.client.st.wire import position_of
from protos.pulsar import PulsarApi_pb2 as pulsar

Entries = Callable[[list[Entry]], None]


class ChunkedMessages:
    """Joins chunks. ``redeliver`` gets entries that have to be sent again, ``give_up`` those of
    messages that will never be complete."""

    def __init__(self, redeliver: Entries, give_up: Entries) -> None:
        self._chunks = Chunks()
        self._redeliver = redeliver
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None

    @property
    def first_entry(self) -> Entry | None:
        """See ``Chunks.first_entry``."""
        return self._chunks.first_entry

    def add(self, message: pulsar.CommandMessage, unpacked: Unpacked) -> bytes | None:
        """Add a chunk; return the body of the message if it is its last one."""
        metadata = unpacked.metadata
        chunk = Chunk(
            metadata.uuid,
            metadata.chunk_id,
            metadata.num_chunks_from_msg,
            position_of(message.message_id).entry,
            unpacked.bodies[0],
        )
        whole, again = self._chunks.add(chunk, asyncio.get_running_loop().time())
        if again:
            self._redeliver(again)
        self._arm()
        return whole

    def entries_before(self, last: Entry) -> list[Entry]:
        """See ``Chunks.entries_before``."""
        return self._chunks.entries_before(last)

    def acknowledged(self, last: Entry) -> list[Entry]:
        """See ``Chunks.acknowledged``."""
        return self._chunks.acknowledged(last)

    def acknowledged_until(self, entry: Entry) -> None:
        """See ``Chunks.acknowledged_until``."""
        self._chunks.acknowledged_until(entry)

    def restart(self) -> None:
        """What is not complete comes again, or nobody wants it any more."""
        self._chunks.restart()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due = self._chunks.next_due
        if self._timer is None and due is not None:
            self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        overdue = self._chunks.take_overdue(asyncio.get_running_loop().time())
        if overdue:
            self._give_up(overdue)
        self._arm()
