"""Pending commands: how many there may be, and how further ones are refused."""

import asyncio

import pytest

from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups import command_dispatcher
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from nextgen.kernel.errors import Overloaded, Unavailable
from nextgen.kernel.limits.pulsar import DISCOVERY_TENANT_LISTINGS_MAX
from nextgen.pulsar.metadata_commands import MetadataCommands
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand


class SlowDirectory:
    """Answers when the test releases it."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.asked = 0

    async def locate(self, name, *, create):
        self.asked += 1
        await self.released.wait()
        raise Unavailable("nobody is there")

    async def topics_of_namespace(self, question):
        self.asked += 1
        await self.released.wait()
        return []


class Asker:
    def __init__(self) -> None:
        self.waiting_commands = 0
        self.answers: list[BaseCommand] = []

    def send_command(self, command):
        self.answers.append(command)

    def command_done(self):
        self.waiting_commands -= 1


def lookup(request_id: int = 1) -> BaseCommand:
    asked = pulsar.CommandLookupTopic(topic="t", request_id=request_id)
    return BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked)


def listing(request_id: int = 1, namespace: str = "t/n") -> BaseCommand:
    asked = pulsar.CommandGetTopicsOfNamespace(namespace=namespace, request_id=request_id)
    return BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked)


@pytest.fixture
def directory():
    return SlowDirectory()


@pytest.fixture
async def dispatcher(directory):
    dispatcher = CommandDispatcher(MetadataCommands(directory), DiscoveryCounters())
    yield dispatcher
    await dispatcher.drain(0)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_command_is_answered_when_its_answer_is_there(dispatcher, directory):
    asker = Asker()
    dispatcher.take(asker, lookup(7))
    await settled()
    assert (asker.answers, asker.waiting_commands, dispatcher.waiting) == ([], 1, 1)

    directory.released.set()
    await settled()

    assert asker.answers[0].lookupTopicResponse.request_id == 7
    assert (asker.waiting_commands, dispatcher.waiting) == (0, 0)


async def test_all_commands_are_bounded_together_with_requests_over_http(dispatcher, monkeypatch):
    monkeypatch.setattr(command_dispatcher, "DISCOVERY_COMMANDS_WAITING_MAX", 2)
    over_http = asyncio.create_task(dispatcher.answer(asyncio.Event().wait))
    await settled()
    asker = Asker()

    dispatcher.take(asker, lookup(1))
    dispatcher.take(asker, lookup(2))
    with pytest.raises(Overloaded):
        await dispatcher.answer(asyncio.Event().wait)

    assert [each.lookupTopicResponse.request_id for each in asker.answers] == [2]
    over_http.cancel()
    await asyncio.gather(over_http, return_exceptions=True)
    assert dispatcher.waiting == 1


async def test_listings_have_a_bound_of_their_own(dispatcher, directory, monkeypatch):
    monkeypatch.setattr(command_dispatcher, "DISCOVERY_LISTINGS_MAX", 1)
    asker = Asker()

    dispatcher.take(asker, listing(1))
    dispatcher.take(asker, listing(2))
    dispatcher.take(asker, lookup(3))

    (refused,) = asker.answers
    assert (refused.error.request_id, refused.error.error) == (2, pulsar.MetadataError)
    directory.released.set()
    await settled()
    dispatcher.take(asker, listing(4))
    await settled()
    assert asker.answers[-1].getTopicsOfNamespaceResponse.request_id == 4


async def test_discovery_tenant_listings_max_are_under_way_and_one_more_is_refused_but_to_others(
    dispatcher, directory
):
    asker = Asker()
    for number in range(DISCOVERY_TENANT_LISTINGS_MAX):
        dispatcher.take(asker, listing(number))
    assert asker.answers == []

    dispatcher.take(asker, listing(100))
    dispatcher.take(asker, listing(200, "other/n"))

    (refused,) = asker.answers
    assert refused.error.request_id == 100
    directory.released.set()
    await settled()
    assert asker.answers[-1].getTopicsOfNamespaceResponse.request_id == 200


async def test_draining_answers_what_was_taken(dispatcher, directory):
    asker = Asker()
    dispatcher.take(asker, lookup(1))
    draining = asyncio.create_task(dispatcher.drain(5_000))
    await settled()
    assert not draining.done()

    directory.released.set()
    await draining

    assert len(asker.answers) == 1


async def test_draining_gives_up_what_takes_too_long(dispatcher):
    asker = Asker()
    dispatcher.take(asker, lookup(1))
    await settled()

    await dispatcher.drain(1)

    assert asker.answers == []
    assert (dispatcher.waiting, asker.waiting_commands) == (0, 0)
