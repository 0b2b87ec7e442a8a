"""One Pulsar client of discovery: lookups from the cache at once, the rest through the desk.

bytes ─ answer_burst ─┬─ LOOKUP, PARTITIONED_METADATA that the cache knows: answered in place
                      └─ one frame ─ general codec ─┬─ metadata command ─▶ desk ─▶ answer
                                                    └─ what is a broker's: refused
"""

from __future__ import annotations

import asyncio
from typing import Final

from discovery.service.command_desk import CommandDesk
from discovery.service.counters import DiscoveryCounters
from discovery.service.topics import KnownTopics
from nextgen.kernel.pulsar_limits import FAST_PENDING_BYTES_MAX
from nextgen.pulsar.connection import Greeting, PulsarConnection
from nextgen.pulsar.frames import MalformedFrame, request_id_of
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.lookups import answer_burst
from nextgen.pulsar.scalable_topics import no_scalable_topics
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
"""Commands that have no answer, and nothing to end here."""

_SCALABLE_TOPICS: Final = frozenset(
    {BaseCommand.SCALABLE_TOPIC_LOOKUP, BaseCommand.WATCH_SCALABLE_TOPICS}
)
"""Commands of scalable topics that are for discovery, and are refused in answers of their own."""


class ClientServices:
    """What all connections of one process share."""

    __slots__ = ("clock", "counters", "desk", "greeting", "known")

    def __init__(self, known: KnownTopics, desk: CommandDesk, counters: DiscoveryCounters) -> None:
        self.known = known
        self.desk = desk
        self.counters = counters
        self.greeting = Greeting()
        self.clock = asyncio.get_running_loop().time


class DiscoveryConnection(PulsarConnection):
    """See ``PulsarConnection``. What it answers at once may overtake what waits, as in Pulsar."""

    __slots__ = ("_services", "waiting_commands")

    def __init__(self, keep_alive: KeepAlive, services: ClientServices) -> None:
        super().__init__(keep_alive, services.greeting)
        self._services = services
        self.waiting_commands = 0
        """Commands of this connection that the desk has."""

    def data_received(self, data: bytes) -> None:
        if not self._is_connected:
            super().data_received(data)
            return
        data = self._reader.take_pending(FAST_PENDING_BYTES_MAX) + data
        if self._reader.pending_bytes:
            super().data_received(data)
            return
        services = self._services
        now = services.clock()
        answers: list[bytes] = []
        at = 0
        end = len(data)
        while True:
            at, lookups = answer_burst(data, at, services.known, now, answers)
            if answers:
                self._send_answers(answers, lookups)
                answers = []
            behind = at + _TOTAL_BYTES + int.from_bytes(data[at : at + _TOTAL_BYTES], "big")
            if behind >= end:
                break
            # One frame that is not for the fast path; behind it there may be more that are.
            super().data_received(data[at:behind])
            at = behind
        if at:
            # What is left begins a frame, which the general codec may not have seen end.
            self.frame_began_at = 0.0
        super().data_received(data[at:])

    def handle(self, command: BaseCommand, payload: bytes) -> None:
        """See ``PulsarConnection.handle``."""
        kind = command.type
        services = self._services
        if services.desk.handles(kind):
            if kind == BaseCommand.LOOKUP:
                services.counters.pulsar_lookups += 1
            elif kind != BaseCommand.PARTITIONED_METADATA:
                services.counters.pulsar_other_commands += 1
            services.desk.take(self, command)
            return
        services.counters.pulsar_other_commands += 1
        self._refuse(command)

    def _send_answers(self, answers: list[bytes], lookups: int) -> None:
        """Send the pieces of answers of which so many are to LOOKUPs."""
        # What is sent while receiving leaves in one write at the end of it.
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
        """Answer what no discovery node serves.

        Raises:
            MalformedFrame: It has no answer, and makes no sense without one given before.
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
