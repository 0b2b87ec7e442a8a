"""One Pulsar client of discovery: the cache answers lookups at once, the dispatcher other commands.

bytes ─ answer_burst ─┬─ LOOKUP, PARTITIONED_METADATA with a cached answer: answered in place
                      └─ one frame ─ general codec ─┬─ metadata command ─▶ dispatcher ─▶ answer
                                                    └─ command for a broker: refused
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from discovery.adapters.servers.loop_turns import LoopTurns
from discovery.domain.fairness import DEFAULT_FAIRNESS, Fairness
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from discovery.service.lookups.topic_directory import KnownTopics
from nextgen.kernel.limits.discovery import DISCOVERY_SHORT_READ_BYTES
from nextgen.kernel.limits.pulsar import (
    DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX,
    FAST_PENDING_BYTES_MAX,
)
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.frames import MalformedFrame, RawFrame, request_id_of
from nextgen.pulsar.greeting import greeting_with
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.lookups import answer_burst
from nextgen.pulsar.scalable_topics.refusals import no_scalable_topics
from nextgen.pulsar.scalable_topics.session import (
    SCALABLE_TOPICS,
    ScalableServices,
    ScalableSession,
)
from nextgen.pulsar.topic_lists.session import WATCHES, TopicListSession, TopicWatches
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authorization.authorizer import Authorizer
from protos.pulsar.PulsarApi_pb2 import BaseCommand, ServerError

_TOTAL_BYTES: Final = 4
_PIECES_PER_ANSWER: Final = 2

_OF_BROKERS: Final = frozenset(
    {
        BaseCommand.PRODUCER,
        BaseCommand.SUBSCRIBE,
        BaseCommand.UNSUBSCRIBE,
        BaseCommand.CLOSE_PRODUCER,
        BaseCommand.CLOSE_CONSUMER,
        BaseCommand.SEEK,
        BaseCommand.CONSUMER_STATS,
        BaseCommand.GET_LAST_MESSAGE_ID,
        BaseCommand.GET_OR_CREATE_SCHEMA,
    }
)
"""Commands about a topic at its broker: the client that sends them here has to look it up."""

_UNANSWERED: Final = frozenset(
    {
        BaseCommand.AUTH_RESPONSE,
        BaseCommand.SCALABLE_TOPIC_CLOSE,
        BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE,
        BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE,
    }
)
"""Commands without an answer that end nothing here."""

_SCALABLE_TOPICS: Final = frozenset(
    {BaseCommand.SCALABLE_TOPIC_LOOKUP, BaseCommand.WATCH_SCALABLE_TOPICS}
)
"""Commands of scalable topics that are for discovery, and are refused in answers of their own."""


class ClientServices:
    """The services that all connections of one process share."""

    __slots__ = (
        "clock",
        "counters",
        "dispatcher",
        "greeting",
        "known",
        "scalable",
        "turn_bytes_max",
        "turn_commands_max",
        "turns",
        "watches",
    )

    def __init__(
        self,
        known: KnownTopics,
        dispatcher: CommandDispatcher,
        counters: DiscoveryCounters,
        fairness: Fairness = DEFAULT_FAIRNESS,
        watches: TopicWatches | None = None,
        scalable: ScalableServices | None = None,
        authenticator: Authenticator | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.known = known
        self.dispatcher = dispatcher
        self.counters = counters
        self.watches = watches
        """None: topic lists cannot be watched at this node."""
        self.scalable = scalable
        """None: layouts of scalable topics cannot be watched at this node."""
        self.greeting = greeting_with(
            watches,
            has_scalable=scalable is not None,
            authenticator=authenticator,
            authorizer=authorizer,
        )
        self.clock = asyncio.get_running_loop().time
        self.turns = LoopTurns(self.clock, fairness.turn_us / 1_000_000)
        self.turn_bytes_max = fairness.turn_bytes_max
        self.turn_commands_max = fairness.turn_commands_max


class DiscoveryConnection(PulsarConnection):
    """See ``PulsarConnection``. Immediate answers may overtake waiting ones, as in Pulsar.

    Connections have turns (ADR 0061): a read beyond ``Fairness.turn_bytes_max`` bytes or
    ``turn_commands_max`` commands waits for another turn (``LoopTurns``). The connection is not
    read meanwhile, nor while too many of its commands wait for shards.
    """

    __slots__ = (
        "_has_turn",
        "_is_full",
        "_scalable",
        "_services",
        "_unread",
        "_watching",
        "waiting_commands",
    )

    def __init__(self, keep_alive: KeepAlive, services: ClientServices) -> None:
        super().__init__(keep_alive, services.greeting)
        self._services = services
        self.waiting_commands = 0
        """Commands of this connection that are being answered."""
        self._is_full = False
        """Whether too many of them wait."""
        self._unread = b""
        """Received bytes that wait for their turn."""
        self._has_turn = False
        """Whether it stands in line for one."""
        self._watching: TopicListSession | None = None
        """Its watchers of topic lists, once it had one."""
        self._scalable: ScalableSession | None = None

    @property
    def is_read(self) -> bool:
        """See ``PulsarConnection.is_read``."""
        return not self._unread and not self._is_full and super().is_read

    @property
    def is_held_back(self) -> bool:
        """Whether commands that were received have to wait, however much time there is."""
        return self._is_full or self.is_asking

    def data_received(self, data: bytes) -> None:
        if (
            len(data) <= DISCOVERY_SHORT_READ_BYTES
            and self._is_connected
            and not (self._unread or self.unfinished_bytes or self._is_closing)
        ):
            # Whole commands that the cache answers, as most reads are: nothing else is looked at.
            services = self._services
            answers: list[bytes] = []
            at, lookups = answer_burst(
                data, 0, services.known, services.clock(), answers, self.lookable
            )
            if at:
                self._send_answers(answers, lookups)
            if at == len(data):
                self._has_heard = True
                self._is_receiving = False
                self._flush()
                return
            data = data[at:]
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        if self._unread:
            # It was on its way when reading was paused.
            self._unread += data
            return
        turns = self._services.turns
        unread = data
        is_long = len(data) > DISCOVERY_SHORT_READ_BYTES
        if not is_long or turns.has_time():
            unread = self._take(data)
            while unread and is_long and not self.is_held_back and turns.has_time():
                unread = self._take(unread)  # No other connection waits.
        if unread:
            self._unread = unread
            self._pause_or_resume()
            self._wait_turn()

    def resumed_writing(self) -> None:
        self._wait_turn()

    def go_on(
        self,
        frame: RawFrame,
        command: BaseCommand,
        behind: Iterable[RawFrame],
        error: Exception | None,
    ) -> None:
        """See ``PulsarConnection.go_on``."""
        super().go_on(frame, command, behind, error)
        self._wait_turn()

    def closed(self) -> None:
        self._unread = b""
        if self._watching is not None:
            self._watching.close()
        if self._scalable is not None:
            self._scalable.close()

    def command_done(self) -> None:
        """Note that one of ``waiting_commands`` was answered or given up."""
        self.waiting_commands -= 1
        if (
            self._is_full
            and self.waiting_commands <= DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX // 2
        ):
            self._is_full = False
            self._wait_turn()
            self._pause_or_resume()

    def _wait_turn(self) -> None:
        if self._unread and not (self._has_turn or self.is_held_back) and self._is_drained:
            self._has_turn = True
            self._services.turns.wait(self._next_turn)

    def _next_turn(self) -> None:
        self._has_turn = False
        unread, self._unread = self._unread, b""
        if not self._is_closing:
            self._unread = self._take(unread)
            self._wait_turn()
            self._pause_or_resume()

    def _take(self, data: bytes) -> bytes:
        """Answer the commands that fit into one turn; return the other bytes."""
        if not self._is_connected or self._reader.pending_bytes > FAST_PENDING_BYTES_MAX:
            return self._take_frame(data)
        data = self._reader.take_pending(FAST_PENDING_BYTES_MAX) + data
        services = self._services
        now = services.clock()
        answers: list[bytes] = []
        at = 0
        end = len(data)
        burst = data if end <= services.turn_bytes_max else data[: services.turn_bytes_max]
        commands = 0
        unread = b""
        while True:
            at, lookups = answer_burst(burst, at, services.known, now, answers, self.lookable)
            if answers:
                self._send_answers(answers, lookups)
                answers = []
            behind = at + _TOTAL_BYTES + int.from_bytes(data[at : at + _TOTAL_BYTES], "big")
            is_cut = at and len(burst) < min(behind, end)
            if is_cut or self.is_held_back or commands == services.turn_commands_max:
                unread = data[at:]
                break
            if behind >= end:
                break
            # One frame that is not for the fast path; behind it there may be more that are.
            super().data_received(data[at:behind])
            at = behind
            commands += 1
        if at:
            # The remaining bytes begin a frame whose end the general codec may not have seen.
            self.frame_began_at = 0.0
        # The finished answers are sent with this.
        super().data_received(b"" if unread else data[at:])
        return unread

    def _take_frame(self, data: bytes) -> bytes:
        """Pass one frame, or its received part, to the general codec; return the bytes behind
        it."""
        pending_bytes = self._reader.pending_bytes
        if pending_bytes:
            behind = self._reader.needed_bytes - pending_bytes
        else:
            behind = _TOTAL_BYTES + int.from_bytes(data[:_TOTAL_BYTES], "big")
        super().data_received(data[:behind])
        return b"" if self._is_closing else data[behind:]

    def handle(self, command: BaseCommand, payload: bytes) -> None:
        """See ``PulsarConnection.handle``."""
        kind = command.type
        services = self._services
        if services.dispatcher.handles(kind):
            if kind == BaseCommand.LOOKUP:
                services.counters.pulsar_lookups += 1
            elif kind != BaseCommand.PARTITIONED_METADATA:
                services.counters.pulsar_other_commands += 1
            services.dispatcher.take(self, command)
            if self.waiting_commands >= DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX:
                self._is_full = True
                self._pause_or_resume()
            return
        services.counters.pulsar_other_commands += 1
        if kind in WATCHES and services.watches is not None:
            if self._watching is None:
                self._watching = TopicListSession(self, services.watches)
            self._watching.handle(command)
        elif kind in SCALABLE_TOPICS and services.scalable is not None:
            if self._scalable is None:
                self._scalable = ScalableSession(self, services.scalable)
            self._scalable.handle(command)
        else:
            self._refuse(command)

    def _send_answers(self, answers: list[bytes], lookups: int) -> None:
        """Send the pieces of answers; ``lookups`` of the answers are to LOOKUPs."""
        # Frames that are sent while receiving leave in one write at the end.
        self._is_receiving = True
        self.send(b"".join(answers))
        answered = len(answers) // _PIECES_PER_ANSWER
        counters = self._services.counters
        counters.pulsar_lookups += lookups
        counters.tally.at_once += lookups
        counters.names_looked_up += lookups
        counters.answers_from_cache += lookups
        counters.pulsar_partition_reads += answered - lookups
        counters.pulsar_partition_reads_from_cache += answered - lookups

    def _refuse(self, command: BaseCommand) -> None:
        """Refuse a command that no discovery node serves.

        Raises:
            MalformedFrame: It has no answer, and needs an earlier command that was never accepted.
        """
        kind = command.type
        name = BaseCommand.Type.Name(kind)
        request_id = request_id_of(command)
        if kind in _SCALABLE_TOPICS:
            answer = no_scalable_topics(command)
            assert answer is not None, "both have one"
            self.send_command(answer)
        elif kind in _OF_BROKERS and request_id is not None:
            why = f"{name}: this is discovery, which serves no topics: look the topic up"
            self.send_error(request_id, ServerError.ServiceNotReady, why)
        elif request_id is not None:
            why = f"{name} is not served by discovery"
            self.send_error(request_id, ServerError.NotAllowedError, why)
        elif kind not in _UNANSWERED:
            raise MalformedFrame(f"{name} at discovery, which has no producers and consumers")
