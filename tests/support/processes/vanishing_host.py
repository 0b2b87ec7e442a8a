"""A host that can vanish: connections to it fall silent, new ones are not accepted.

Ports of a process are reached through this one. After ``vanish`` nothing is forwarded and nothing
is closed, and whoever connects waits until it gives up, as with a machine that lost power: no RST,
no FIN, no refusal. What the process itself has connected to is to be silenced by stopping it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from nextgen.tasks.timeouts import timeout


class VanishingHost:
    """Forwards ports of 127.0.0.1 to others. Owned by one event loop."""

    def __init__(self) -> None:
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []

    def forward(self, port: int) -> int:
        """Return a new port whose connections go to ``port`` from here on."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        listener.setblocking(False)
        self._listeners.append(listener)
        self._accepting.append(asyncio.create_task(self._accept(listener, port)))
        return int(listener.getsockname()[1])

    async def vanish(self) -> None:
        """Drop everything in both directions, and accept no connection."""
        for task in (*self._accepting, *self._pumps):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._pumps, return_exceptions=True)
        for listener in self._listeners:
            listener.listen(0)
            await self._fill_backlog(listener)

    async def close(self) -> None:
        for task in (*self._accepting, *self._pumps):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._pumps, return_exceptions=True)
        for each in (*self._listeners, *self._sockets):
            each.close()

    async def _fill_backlog(self, listener: socket.socket) -> None:
        """Connect until that is not answered any more."""
        loop = asyncio.get_running_loop()
        while True:
            filler = socket.socket()
            filler.setblocking(False)
            self._sockets.append(filler)
            try:
                async with timeout(0.1):
                    await loop.sock_connect(filler, listener.getsockname())
            except TimeoutError:
                return

    async def _accept(self, listener: socket.socket, port: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            outer, _ = await loop.sock_accept(listener)
            inner = socket.socket()
            self._sockets += [outer, inner]
            for each in (outer, inner):
                each.setblocking(False)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await loop.sock_connect(inner, ("127.0.0.1", port))
            except OSError:
                outer.close()
                continue
            pumping = asyncio.create_task(_connect(outer, inner))
            self._pumps.add(pumping)
            pumping.add_done_callback(self._pumps.discard)


async def _connect(outer: socket.socket, inner: socket.socket) -> None:
    """Carry bytes both ways until either end closes, then close the other.

    Cancelled, it leaves both open: that is what vanishing means.
    """
    both = {asyncio.create_task(_carry(*pair)) for pair in ((outer, inner), (inner, outer))}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Before they are closed: the loop would mistake the next sockets for these.
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
    outer.close()
    inner.close()


async def _carry(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, 65_536):
            await loop.sock_sendall(target, data)
