"""The network: hosts, links that delay, cuts, and connections that are TCP's.

On a connection nothing is lost or overtaken. What a cut holds up arrives when it heals, unless
the connection was given up before. A host that is silent, because of a cut, a freeze or a lost
machine, is noticed by keep-alives; a process that dies on a living machine resets its
connections at once.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from nextgen.runtime.servers.grpc_server import KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.cluster_simulation.virtual_loop import OUTSIDE, SimulatedLoop

DELAY_MS_MIN = 0.05
DELAY_MS_TYPICAL = 2.0
RETRANSMISSION_MS_MAX = 400.0
SYN_INTERVAL_S = 1.0

BEHIND_S = 1e-6
"""Between two messages of one direction, so that their order rests on no timer's."""


class Trace:
    """A hash of everything that was seen, in order."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._hash = hashlib.blake2b(digest_size=16)
        self.deliveries = 0
        self.listener: Callable[[float, str, bytes], None] | None = None

    def note(self, what: str, data: bytes = b"") -> None:
        self._hash.update(f"{self._now_s():.9f} {what} {len(data)} ".encode())
        self._hash.update(data)
        self.deliveries += 1
        if self.listener is not None:
            self.listener(self._now_s(), what, data)

    def digest(self) -> str:
        return self._hash.hexdigest()


class Acceptor(Protocol):
    """Who listens at an endpoint."""

    process: SimulatedProcess

    def accept(self, connection: Connection) -> ConnectionEnd: ...


class ConnectionEnd(Protocol):
    """The callbacks of one side of a connection, run as its process."""

    def on_broken(self, reason: str) -> None: ...


class Side(Enum):
    """The ends of a connection. A process may be at both: it connects to its own port."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Side:
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


@dataclass(slots=True, eq=False)
class _Direction:
    source: SimulatedProcess
    target: SimulatedProcess
    to: Side
    arrives_at_s: float = 0.0
    stalled: deque[tuple[Any, ...]] = field(default_factory=deque)


class Connection:
    """One TCP connection. Both ends are notified once when it ends."""

    def __init__(
        self, network: Network, client: SimulatedProcess, server: SimulatedProcess
    ) -> None:
        self._network = network
        self.number = network.next_number()
        self.client, self.server = client, server
        self._directions = (
            _Direction(client, server, Side.SERVER),
            _Direction(server, client, Side.CLIENT),
        )
        self.ends: dict[Side, ConnectionEnd] = {}
        self._told: set[Side] = set()

    @property
    def pair(self) -> tuple[str, str]:
        return pair_of(self.client.host, self.server.host)

    def concerns(self, process: SimulatedProcess) -> bool:
        return process in (self.client, self.server)

    def process_at(self, side: Side) -> SimulatedProcess:
        return self.client if side is Side.CLIENT else self.server

    def is_over_for(self, side: Side) -> bool:
        return side in self._told

    def send(
        self,
        sender: Side,
        what: str,
        data: bytes,
        take: Callable[..., None],
        *args: Any,
    ) -> None:
        """Have the other side call ``take(*args)`` when ``data`` has travelled there."""
        direction = self._directions[0 if sender is Side.CLIENT else 1]
        network = self._network
        arrives_at_s = max(
            direction.arrives_at_s + BEHIND_S, network.now_s + network.delay_s(self.pair)
        )
        direction.arrives_at_s = arrives_at_s
        network.loop.call_later(
            arrives_at_s - network.now_s,
            self._arrive,
            direction,
            (what, data, take, args),
            context=direction.target.context,
        )

    def _arrive(self, direction: _Direction, message: tuple[Any, ...]) -> None:
        if direction.to in self._told:
            return
        source, target = direction.source.host, direction.target.host
        if direction.stalled or self._network.is_cut(source, target):
            direction.stalled.append(message)
            return
        what, data, take, arguments = message
        self._network.trace.note(f"{direction.source.name}>{direction.target.name} {what}", data)
        take(*arguments)

    def flow_again(self) -> None:
        """The cut is healed: what stalled is sent again, in its order."""
        network = self._network
        for direction in self._directions:
            stalled, direction.stalled = direction.stalled, deque()
            if not stalled:
                continue
            again_ms = network.chance.uniform(1, RETRANSMISSION_MS_MAX)
            at_s = max(direction.arrives_at_s, network.now_s + again_ms / 1000)
            for message in stalled:
                at_s += BEHIND_S
                network.loop.call_later(
                    at_s - network.now_s,
                    self._arrive,
                    direction,
                    message,
                    context=direction.target.context,
                )
            direction.arrives_at_s = at_s

    def close(self, side: Side) -> None:
        """One end closes; the other one hears of it as of a message."""
        if side in self._told:
            return
        self._told.add(side)
        # By ``send``, so that it arrives behind what was sent before.
        self.send(side, "close", b"", self._tell, side.other, "Connection reset by peer")
        self._network.forget_if_over(self)

    def break_for(self, side: Side, reason: str) -> None:
        """Tell one end, now or when it runs again, that the connection is gone."""
        context = self.process_at(side).context
        self._network.loop.call_soon(self._tell, side, reason, context=context)

    def _tell(self, side: Side, reason: str) -> None:
        if side in self._told:
            return
        self._told.add(side)
        name = self.process_at(side).name
        self._network.trace.note(f"{name} loses {self.pair}: {reason}")
        self._network.forget_if_over(self)
        self.ends[side].on_broken(reason)

    @property
    def is_over(self) -> bool:
        return all(self.process_at(side).is_dead or side in self._told for side in Side)


def pair_of(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one <= other else (other, one)


class Network:
    """Which hosts reach each other, and how fast. Faults change it while messages are under way."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.is_over = False
        """The run is over: nothing is sent, and finalizers have nothing to do."""
        self.trace = Trace(loop.time)
        self.delay_ms_max = DELAY_MS_TYPICAL
        self.slow_pairs: dict[tuple[str, str], float] = {}
        self._cut: dict[tuple[str, str], int] = {}
        """By source and target: which cut it was."""
        self._cuts_made = 0
        self._listeners: dict[str, list[Acceptor]] = {}
        """By endpoint. Several belong to one process, and share its connections in turn."""
        self._connections: dict[int, Connection] = {}
        self._numbers = itertools.count(1)
        self._accepted = 0
        self._backlog: dict[int, tuple[SimulatedProcess, SimulatedProcess, Callable[[], None]]] = {}
        """Connections that a process has not accepted yet: it, the client, how that is refused."""
        self.silent_hosts: dict[str, None] = {}
        """Machines that are off: nothing answers there, not even with a refusal."""

    @property
    def now_s(self) -> float:
        return self.loop.now_s

    def delay_s(self, pair: tuple[str, str]) -> float:
        most_ms = self.slow_pairs.get(pair, self.delay_ms_max)
        return self.chance.uniform(DELAY_MS_MIN, most_ms) / 1000

    # Faults -----------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether nothing that ``source`` sends arrives at ``target``."""
        return (source, target) in self._cut

    def is_cut_off(self, host: str) -> bool:
        """Return whether some host does not reach ``host``, or is not reached by it."""
        return any(host in way for way in self._cut)

    def reach(self, one: str, other: str) -> bool:
        """Return whether two hosts reach each other both ways, without long delays."""
        if (one, other) in self._cut or (other, one) in self._cut:
            return False
        return pair_of(one, other) not in self.slow_pairs

    def cut(self, pair: tuple[str, str]) -> None:
        one, other = pair
        self.cut_way(one, other)
        self.cut_way(other, one)

    def cut_way(self, source: str, target: str) -> None:
        """Lose what ``source`` sends to ``target``; the other way everything arrives.

        Both ends give a connection up: neither gets its keep-alives acknowledged.
        """
        way = (source, target)
        if way in self._cut:
            return
        self._cuts_made += 1
        number = self._cut[way] = self._cuts_made
        for connection in self._living():
            if connection.pair == pair_of(source, target):
                self._give_up_later(connection, lambda: self._cut.get(way) == number)

    def mend(self, pair: tuple[str, str]) -> None:
        """Let two hosts reach each other again, both ways."""
        one, other = pair
        for way in (one, other), (other, one):
            self._cut.pop(way, None)
        for connection in self._living():
            if connection.pair == pair_of(one, other):
                connection.flow_again()

    def heal(self) -> None:
        """Take back every cut, and every slowness."""
        self._cut.clear()
        self.slow_pairs.clear()
        self.delay_ms_max = DELAY_MS_TYPICAL
        for connection in self._living():
            connection.flow_again()

    def frozen(self, process: SimulatedProcess) -> None:
        """``process`` has just been frozen: its peers give up after some time."""
        number = process.freezes
        for connection in self._living():
            if connection.concerns(process):
                self._give_up_later(
                    connection, lambda: process.is_frozen and process.freezes == number
                )

    def died(self, process: SimulatedProcess, *, with_machine: bool) -> None:
        """Notify the connected peers: at once if the machine lives, by silence if not."""
        for endpoint, acceptors in tuple(self._listeners.items()):
            if acceptors[0].process is process:
                del self._listeners[endpoint]
        if with_machine:
            self.silent_hosts[process.host] = None
        for number, (server, client, refuse) in tuple(self._backlog.items()):
            if server is process:
                del self._backlog[number]
                pair = pair_of(client.host, server.host)
                delay_s = KEEPALIVE_TIMEOUT_MS / 1000 if with_machine else self.delay_s(pair)
                self.loop.call_later(delay_s, refuse, context=client.context)
        for connection in self._living():
            if not connection.concerns(process):
                continue
            if with_machine:
                self._give_up_later(connection, lambda: True)
                continue
            side = Side.CLIENT if process is connection.client else Side.SERVER
            connection.send(
                side, "reset", b"", connection._tell, side.other, "Connection reset by peer"
            )
            # Its machine resets the connection whenever the other side sends something there.
            self._give_up_later(connection, lambda: True)

    def started(self, host: str) -> None:
        self.silent_hosts.pop(host, None)

    def _give_up_later(self, connection: Connection, still_silent: Callable[[], bool]) -> None:
        least_s, spread_s = KEEPALIVE_TIMEOUT_MS / 1000, KEEPALIVE_TIME_MS / 1000
        delay_s = least_s + self.chance.uniform(0, spread_s)

        def look() -> None:
            if still_silent():
                for side in Side:
                    connection.break_for(side, "keepalive watchdog timeout")

        self.loop.call_later(delay_s, look, context=OUTSIDE)

    def _living(self) -> list[Connection]:
        return list(self._connections.values())

    def forget_if_over(self, connection: Connection) -> None:
        if connection.is_over:
            self._connections.pop(connection.number, None)

    def next_number(self) -> int:
        return next(self._numbers)

    def reset(self, process: SimulatedProcess) -> None:
        """Break every connection of a living process, as a middlebox that lost its state does."""
        self.trace.note(f"reset {process.name}")
        for connection in self._living():
            if connection.concerns(process):
                for side in Side:
                    connection.break_for(side, "Connection reset by peer")

    # Connecting -------------------------------------------------------------------------------

    def listen(self, endpoint: str, acceptor: Acceptor) -> None:
        """Accept connections; with others of the same process, as SO_REUSEPORT allows."""
        sharing = self._listeners.setdefault(endpoint, [])
        assert all(each.process is acceptor.process for each in sharing), f"{endpoint} is taken"
        sharing.append(acceptor)

    def is_taken(self, endpoint: str) -> bool:
        return endpoint in self._listeners

    def stop_listening(self, endpoint: str, acceptor: Acceptor) -> None:
        sharing = self._listeners.get(endpoint, [])
        if acceptor in sharing:
            sharing.remove(acceptor)
        if not sharing:
            self._listeners.pop(endpoint, None)

    def connect(
        self,
        client: SimulatedProcess,
        endpoint: str,
        on_done: Callable[[Connection | None], ConnectionEnd | None],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Connect; ``on_done`` gets the connection, or None if the port refuses.

        Silence is answered by silence: it is asked again each ``SYN_INTERVAL_S`` while
        ``is_wanted``.
        """
        host = endpoint.rpartition(":")[0]
        pair = pair_of(client.host, host)

        def answer(connection: Connection | None) -> None:
            end = on_done(connection)
            if connection is not None and end is not None:
                connection.ends[Side.CLIENT] = end

        def refuse() -> None:
            answer(None)

        def knock() -> None:
            if client.is_dead or not is_wanted():
                return
            is_cut = self.is_cut(client.host, host) or self.is_cut(host, client.host)
            if is_cut or host in self.silent_hosts:
                self.loop.call_later(SYN_INTERVAL_S, knock, context=OUTSIDE)
                return
            sharing = self._listeners.get(endpoint)
            if sharing is None:
                delay_s = self.delay_s(pair)
                self.loop.call_later(delay_s, refuse, context=client.context)
                return
            acceptor = sharing[self._accepted % len(sharing)]
            self._accepted += 1
            self._backlog[self._accepted] = (acceptor.process, client, refuse)
            self.loop.call_soon(accept, acceptor, self._accepted, context=acceptor.process.context)

        def accept(acceptor: Acceptor, number: int) -> None:
            # A frozen process accepts it when it goes on. One that dies first never does.
            del self._backlog[number]
            connection = Connection(self, client, acceptor.process)
            connection.ends[Side.CLIENT] = _Unanswered(refuse)
            self._connections[connection.number] = connection
            connection.ends[Side.SERVER] = acceptor.accept(connection)
            connection.send(Side.SERVER, "connected", b"", answer, connection)

        self.loop.call_later(self.delay_s(pair), knock, context=OUTSIDE)


class _Unanswered:
    """The client's end of a connection that it does not know of yet."""

    def __init__(self, refuse: Callable[[], None]) -> None:
        self._refuse = refuse

    def on_broken(self, reason: str) -> None:
        self._refuse()
