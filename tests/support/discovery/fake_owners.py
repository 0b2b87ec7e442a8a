"""Brokers of topics whose answers a test scripts, and which record their requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import topic_admin_pb2 as pb
from protos.nextgen.v1.broker_service_pb2 import TopicStats

_ANSWERS: dict[type[Message], type[Message]] = {
    pb.GetStatsRequest: TopicStats,
    pb.GetInternalStatsRequest: pb.TopicInternalStats,
    pb.CreateSubscriptionRequest: pb.CreateSubscriptionResponse,
    pb.DeleteSubscriptionRequest: pb.DeleteSubscriptionResponse,
    pb.UpdateSubscriptionRequest: pb.UpdateSubscriptionResponse,
    pb.SkipMessagesRequest: pb.SkipMessagesResponse,
    pb.ResetCursorRequest: pb.ResetCursorResponse,
    pb.ExpireMessagesRequest: pb.ExpireMessagesResponse,
    pb.GetLastMessageIdRequest: pb.LastMessageId,
    pb.TerminateRequest: pb.LastMessageId,
    pb.TruncateRequest: pb.TruncateResponse,
    pb.TrimRequest: pb.TrimResponse,
    pb.FindByTimeRequest: pb.FoundPosition,
    pb.AnalyzeBacklogRequest: pb.BacklogAnalysis,
    pb.ListSchemasRequest: pb.ListSchemasResponse,
    pb.CheckSchemaRequest: pb.CheckSchemaResponse,
    pb.AddSchemaRequest: pb.AddSchemaResponse,
    pb.DeleteSchemaRequest: pb.DeleteSchemaResponse,
}


class FakeOwners:
    """The ``Owners`` of operations. ``answer`` may give another answer than an empty one."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answer: Callable[[str, Any], Any] = lambda _name, _request: None
        """Given a unit's name and a request: None, an answer, or an error to be raised."""

    async def call(self, name: TopicName, request: Any) -> Any:
        self.calls.append((name.text, request))
        answer = self.answer(name.text, request)
        if isinstance(answer, MetadataError):
            raise answer
        return _ANSWERS[type(request)]() if answer is None else answer

    async def entry(self, name: TopicName, request: Any) -> Any:
        """As ``call``; without an answer there is no such entry."""
        self.calls.append((name.text, request))
        answer = self.answer(name.text, request)
        if answer is None:
            raise Refused(RejectionCode.NOT_FOUND, "there is no such entry")
        if isinstance(answer, MetadataError):
            raise answer
        return answer
