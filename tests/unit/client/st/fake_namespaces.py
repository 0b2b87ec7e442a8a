"""What a fake server does about watches of namespaces."""

from __future__ import annotations

from typing import Any

from nextgen.pulsar.topic_lists.hash import topics_hash
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.fake_server import Command, FakeConnection, FakeServer


class Namespaces:
    """The half of a server that watches namespaces. It lists ``names`` of those that it has."""

    def __init__(self, server: FakeServer, *, has_all: bool = False) -> None:
        """``has_all``: it lists all topics that the server has, whatever the filter."""
        self.server = server
        self.names: set[str] = set()
        self._has_all = has_all
        self.watches: dict[int, FakeConnection] = {}
        self.requests: list[pulsar.CommandWatchScalableTopics] = []
        self.closed = 0
        self.refusal: int | None = None
        self.is_silent = False
        server.answers = self.answer

    def answer(self, connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.WATCH_SCALABLE_TOPICS:
            request = command.watchScalableTopics
            if self._has_all:
                self.names = set(self.server.topics)
            self.requests.append(request)
            self.watches[request.watch_id] = connection
            if self.is_silent:
                return True
            if self.refusal is not None:
                self.send(request.watch_id, error=self.refusal, message="no")
            elif request.current_hash != topics_hash(self.names):
                self.send(
                    request.watch_id,
                    snapshot=pulsar.ScalableTopicsSnapshot(topics=sorted(self.names)),
                )
            return True
        if command.type == Command.WATCH_SCALABLE_TOPICS_CLOSE:
            self.closed += 1
            del self.watches[command.watchScalableTopicsClose.watch_id]
            return True
        return False

    def send(self, watch_id: int, **fields: Any) -> None:
        update = pulsar.CommandWatchScalableTopicsUpdate(watch_id=watch_id, **fields)
        self.watches[watch_id].send(
            Command(type=Command.WATCH_SCALABLE_TOPICS_UPDATE, watchScalableTopicsUpdate=update)
        )

    def change(self, *, added: tuple[str, ...] = (), removed: tuple[str, ...] = ()) -> None:
        self.names = (self.names - set(removed)) | set(added)
        for watch_id in self.watches:
            self.send(watch_id, diff=pulsar.ScalableTopicsDiff(added=added, removed=removed))

    def create(self, *names: str) -> None:
        for name in names:
            self.server.create(name)
        self.change(added=names)

    def drop_connections(self) -> None:
        self.watches.clear()
        for each in list(self.server.connections):
            each.abort()
