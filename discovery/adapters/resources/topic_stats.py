"""A topic's statistics, its end, and everything else that its broker answers about it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from pydantic import TypeAdapter

from discovery.adapters.resources import stats_content
from discovery.adapters.resources.places import Place, path_number
from discovery.adapters.resources.stats_content import StatsContent
from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.resources.topics import TOPIC
from discovery.adapters.rest.answer import (
    DONE,
    Answer,
    RestFailure,
    Stream,
    content,
    whole_or_streamed,
)
from discovery.adapters.rest.long_json import LongAnswers, json_text
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import BOOLEAN, Body, Route, Work
from discovery.service.admin.topic_operations import TopicOperations
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.routing.names import Domain, TopicName
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb

_STATS = (
    "getPreciseBacklog",
    "subscriptionBacklogSize",
    "getEarliestTimeInBacklog",
    "excludePublishers",
    "excludeConsumers",
)
_PLACE = Body(TypeAdapter(Place))


class TopicStats:
    """Answers as a Pulsar does. An idle topic is assigned first."""

    def __init__(self, operations: TopicOperations) -> None:
        self._operations = operations
        self._long = LongAnswers()

    def routes(self) -> list[Route]:
        flags = dict.fromkeys(_STATS, BOOLEAN)
        return [
            _read("stats", self._stats, "A topic's statistics", query=flags),
            _read(
                "partitioned-stats",
                self._partitioned_stats,
                "Statistics of all partitions",
                query=flags | {"perPartition": BOOLEAN},
            ),
            _read("internalStats", self._internal, "What is stored of a topic"),
            _read(
                "partitioned-internalStats",
                self._partitioned_internal,
                "What is stored of each partition",
            ),
            _read("internal-info", self._info, "A topic's ledgers and cursors"),
            _read("lastMessageId", self._last, "The last entry of a topic", Action.CONSUME),
            _read(
                "messageid/{timestamp}",
                self._by_time,
                "The first message since a time",
                Action.CONSUME,
            ),
            Route(
                "PUT",
                f"{TOPIC}/backlogSize",
                self._backlog_size,
                "The bytes from a message on",
                Action.CONSUME,
                body=_PLACE,
                answers={200: "Estimated by the average size.", 405: "Not of such a topic."},
            ),
            _change("POST", "terminate", self._terminate, "End a topic for ever", 200),
            _change(
                "POST",
                "terminate/partitions",
                self._terminate_partitions,
                "End all partitions for ever",
                200,
            ),
            _change("DELETE", "truncate", self._truncate, "Acknowledge and drop everything", 204),
            _change("POST", "trim", self._trim, "Drop what nothing keeps", 204),
        ]

    async def _stats(self, request: RestRequest) -> Answer | Stream:
        unit, created_time_ms = await self._unit_with_age(request)
        stats = await self._operations.call(unit, admin_pb.GetStatsRequest())
        found = StatsContent(created_time_ms, **_excluded(request)).add(stats)
        return await whole_or_streamed(self._long.pieces(found.texts()))

    async def _partitioned_stats(self, request: RestRequest) -> Answer | Stream:
        units = await self._partitions(request)
        return await whole_or_streamed(self._stats_of_all(units, request))

    async def _stats_of_all(
        self, units: Sequence[TopicName], request: RestRequest
    ) -> AsyncGenerator[bytes]:
        """Yield the statistics of each partition, where wanted, and behind them the sum."""
        excluded, is_each = _excluded(request), request.flag("perPartition", default=True)
        whole = StatsContent(**excluded)
        answers = self._operations.call_in_order(units, admin_pb.GetStatsRequest)
        yield b'{"partitions":{'
        beginning = ""
        async with aclosing(answers):
            async for unit, stats in answers:
                whole.add(stats)
                if is_each:
                    one = StatsContent(**excluded).add(stats)
                    yield f"{beginning}{json_text(unit.text)}:".encode()
                    async for piece in self._long.pieces(one.texts()):
                        yield piece
                    beginning = ","
        texts = whole.texts({"metadata": {"partitions": len(units), "deleted": False}})
        # The object has begun above.
        yield f"}},{next(texts).removeprefix('{')}".encode()
        async for piece in self._long.pieces(texts):
            yield piece

    async def _internal(self, request: RestRequest) -> Answer:
        unit = await self._unit(request)
        with refused_as({RejectionCode.NOT_ALLOWED: 405}):
            stats = await self._operations.call(unit, admin_pb.GetInternalStatsRequest())
        return content(stats_content.internal_stats(stats))

    async def _partitioned_internal(self, request: RestRequest) -> Answer | Stream:
        units = await self._partitions(request)
        with refused_as({RejectionCode.NOT_ALLOWED: 405}):
            return await whole_or_streamed(self._internal_of_all(units))

    async def _internal_of_all(self, units: Sequence[TopicName]) -> AsyncGenerator[bytes]:
        metadata = json_text({"partitions": len(units), "deleted": False})
        answers = self._operations.call_in_order(units, admin_pb.GetInternalStatsRequest)
        beginning = f'{{"metadata":{metadata},"partitions":{{'
        async with aclosing(answers):
            async for unit, stats in answers:
                one = stats_content.internal_stats(stats)
                yield f"{beginning}{json_text(unit.text)}:{json_text(one)}".encode()
                beginning = ","
        yield b"}}"

    async def _info(self, request: RestRequest) -> Answer:
        unit = await self._unit(request)
        with refused_as({RejectionCode.NOT_ALLOWED: 405}):
            stats = await self._operations.call(unit, admin_pb.GetInternalStatsRequest())
        return content(stats_content.internal_info(stats))

    async def _last(self, request: RestRequest) -> Answer:
        _check_persistent(request, "it stores no entry")
        unit = await self._unit(request, partitioned=405)
        last = await self._operations.call(unit, admin_pb.GetLastMessageIdRequest())
        return content(stats_content.message_id(last, unit))

    async def _terminate(self, request: RestRequest) -> Answer:
        _check_persistent(request, "it cannot be terminated")
        unit = await self._unit(request, partitioned=406)
        last = await self._operations.call(unit, admin_pb.TerminateRequest())
        return content(stats_content.message_id(last, unit))

    async def _terminate_partitions(self, request: RestRequest) -> Answer:
        _check_persistent(request, "it cannot be terminated")
        units = await self._partitions(request, absent=405)
        answers = await self._operations.call_all(units, admin_pb.TerminateRequest)
        return content(
            {
                str(unit.partition): stats_content.message_id(last, unit)
                for unit, last in answers.items()
            }
        )

    async def _truncate(self, request: RestRequest) -> Answer:
        _check_persistent(request, "it stores nothing")
        units = await self._operations.units(request.topic(), request.timeout_ms)
        await self._operations.call_all(units, admin_pb.TruncateRequest)
        return DONE

    async def _trim(self, request: RestRequest) -> Answer:
        _check_persistent(request, "it stores nothing")
        units = await self._operations.units(request.topic(), request.timeout_ms)
        await self._operations.call_all(units, admin_pb.TrimRequest)
        return DONE

    async def _by_time(self, request: RestRequest) -> Answer:
        _check_persistent(request, "it stores no message")
        time_ms = path_number(request, "timestamp")
        unit = await self._unit(request, partitioned=405)
        found = await self._operations.call(
            unit, admin_pb.FindByTimeRequest(publish_time_ms=time_ms)
        )
        return content(stats_content.found_id(found.position, unit))

    async def _backlog_size(self, request: RestRequest) -> Answer:
        _check_persistent(request, "it stores no message")
        place: Place = request.body
        unit = await self._unit(request, partitioned=405)
        stats = await self._operations.call(unit, admin_pb.GetInternalStatsRequest())
        return content(stats_content.backlog_bytes(stats, place.ledgerId, place.entryId))

    async def _unit(self, request: RestRequest, *, partitioned: int = 404) -> TopicName:
        """Return the topic, which is one unit; ``partitioned`` is the status if it has several.

        Raises:
            RestFailure: It has partitions.
            Refused: NOT_FOUND.
        """
        return (await self._unit_with_age(request, partitioned=partitioned))[0]

    async def _unit_with_age(
        self, request: RestRequest, *, partitioned: int = 404
    ) -> tuple[TopicName, int]:
        """As ``_unit``, with the Unix milliseconds at which the topic was created."""
        name = request.topic()
        topic = await self._operations.topic(name, request.timeout_ms)
        if topic.partitions and name.partition is None:
            raise RestFailure(partitioned, f"topic {name.text} has partitions: name one of them")
        return name, topic.created_time_ms

    async def _partitions(self, request: RestRequest, *, absent: int = 404) -> list[TopicName]:
        name = request.topic()
        units = await self._operations.units(name, request.timeout_ms)
        if units == [name]:
            if absent != 404:
                raise RestFailure(absent, f"topic {name.text} has no partitions")
            raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} has no partitions")
        return units


def _check_persistent(request: RestRequest, reason: str) -> None:
    name = request.topic()
    if name.domain is not Domain.PERSISTENT:
        raise RestFailure(405, f"topic {name.text} is not persistent: {reason}")


def _excluded(request: RestRequest) -> Mapping[str, bool]:
    return {
        "with_publishers": not request.flag("excludePublishers"),
        "with_consumers": not request.flag("excludeConsumers"),
    }


def _read(path: str, work: Work, summary: str, action: Action = Action.READ, **more: Any) -> Route:
    answers = {200: f"{summary}.", 405: "Not of such a topic."}
    return Route("GET", f"{TOPIC}/{path}", work, summary, action, answers=answers, **more)


def _change(method: str, path: str, work: Work, summary: str, status: int) -> Route:
    answers = {status: "It is done.", 405: "Not of such a topic.", 406: "It has partitions."}
    return Route(method, f"{TOPIC}/{path}", work, summary, Action.CHANGE, answers=answers)
