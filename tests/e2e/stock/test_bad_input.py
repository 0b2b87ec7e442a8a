"""What must not be, between a stock broker and its sidecar: each has a line and a count, and no
topic two owners that acknowledge.

A broker that begins more than ``SESSIONS_STARTED_MAX`` sessions within a minute gets no topics for
another one. So tests that need no topic at the meddled broker stand between those that do, or last.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pulsar
import pytest
from pulsar import InitialPosition, MessageId

from brokers.adapters.plugin.messages import PROTOCOL, encode
from nextgen.kernel.limits.stream import PLUGIN_LINE_BYTES_MAX
from tests.support.callers.stock_client import numbered, read_all, send_all, texts
from tests.support.callers.stock_load import (
    SEND_TIMEOUT_MS,
    SteadyProducer,
    assert_stored_once_in_order,
)
from tests.support.stock.cluster import FOR_STOCK, NODE, RunningSidecar
from tests.support.stock.meddler import Change, behind, once, with_fields, without
from tests.support.stock.world import COMES_ABOUT_S, MEDDLED, PLAIN, World, until

STRANGER = 65_534

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]


@pytest.fixture
def topic(
    world: World, client: pulsar.Client, handed_over: str, request: pytest.FixtureRequest
) -> str:
    """A topic of which Pulsar keeps all messages."""
    name = f"persistent://{handed_over}/{request.node.name.partition('[')[0]}-{id(request)}"
    world.system.create_topics([name])
    client.subscribe(name, "keeps", initial_position=InitialPosition.Earliest).close()
    return name


@contextmanager
def counted(sidecar: RunningSidecar, kind: str) -> Iterator[None]:
    """Do something after which a fault of this kind is counted, and a line says why."""
    faults, lines = sidecar.faults(kind), len(sidecar.reasons(kind))
    yield
    until(lambda: sidecar.faults(kind) > faults, f"no fault {kind} is counted")
    assert len(sidecar.reasons(kind)) > lines


def steady(client: pulsar.Client, topic: str) -> SteadyProducer:
    producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
    return SteadyProducer(producer, in_flight_max=200, pause_ms=5)


def stored(client: pulsar.Client, topic: str) -> list[str]:
    return texts(read_all(client.create_reader(topic, MessageId.earliest)))


def numbers(contents: list[str]) -> list[int]:
    return [int(each) for each in contents if each.isdecimal()]


def test_fields_of_a_later_release_change_nothing(
    world: World, client: pulsar.Client, topic: str
) -> None:
    later: Change = with_fields("", later={"a": [1]})
    world.meddler.up = world.meddler.down = later
    world.begin_anew()
    world.move_to(topic, MEDDLED)
    send_all(client.create_producer(topic), numbered(10))
    world.move_to(topic, PLAIN)
    world.move_to(topic, MEDDLED)
    world.restore()

    assert stored(client, topic) == numbered(10)


@pytest.mark.parametrize(
    ("kind", "up"),
    [
        ("other_protocol", with_fields("hello", protocol=PROTOCOL + 1)),
        ("other_release", with_fields("hello", built_for="4.0.0")),
    ],
)
def test_a_broker_whose_plugin_is_of_another_version_gets_no_topics(
    world: World, client: pulsar.Client, topic: str, kind: str, up: Change
) -> None:
    world.move_to(topic, MEDDLED)
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        with counted(world.meddled, kind):
            world.meddler.up = up
            world.meddler.break_off()
        world.wait_other_owner(topic, MEDDLED)
        load.wait_acknowledged(100)
    world.restore()

    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_a_process_of_another_user_may_not_command_a_broker(world: World) -> None:
    """The file keeps it out. Where somebody has opened that, the plug-in knows whose process it is;
    that it refuses before it looks whether it is commanded already."""
    path = world.stock.socket(PLAIN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.parent.chmod(0o711)
    assert "Permission denied" in heard_as(STRANGER, path)
    path.chmod(0o666)
    bye = json.loads(heard_as(STRANGER, path))
    assert bye["kind"] == "bye"
    assert "may not command" in bye["why"]
    assert json.loads(heard_as(os.geteuid(), path))["kind"] == "busy"
    path.chmod(0o600)


def heard_as(user: int, path: Path) -> str:
    """Return all that a process of a user hears at a socket, or why it hears nothing."""
    program = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
    result = subprocess.run(
        ["/usr/bin/python3", "-c", f"{program}; print(s.makefile().read())", str(path)],
        user=user,
        capture_output=True,
        text=True,
        timeout=COMES_ABOUT_S,
        check=False,
    )
    return result.stdout + result.stderr


def test_a_second_sidecar_of_a_broker_waits_and_follows_the_first(
    world: World, client: pulsar.Client, topic: str
) -> None:
    world.move_to(topic, PLAIN)
    second = world.another_sidecar(PLAIN, "stock-2-again")
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        until(lambda: any("commands it" in each for each in second.reasons("second_sidecar")))
        assert second.faults("second_sidecar") > 0
        assert len(second.reasons("second_sidecar")) == 1
        load.wait_acknowledged(100)
        assert world.system.owner(topic) == NODE.format(PLAIN)

        world.stock.sidecars[PLAIN].kill()
        until(lambda: "session is up" in second.log.read_text(errors="replace"))
        load.wait_acknowledged(100)

    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


def test_a_topic_that_pulsar_does_not_have_is_named(world: World, client: pulsar.Client) -> None:
    namespace = "acme/closed"
    world.stock.hand_over(namespace)
    world.system.create_namespace(namespace, FOR_STOCK)
    world.stock.admin(
        "POST", f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False}
    )
    topic = f"persistent://{namespace}/absent"
    world.system.create_topics([topic])
    owner = world.stock.sidecars[world.number_of_owner(topic)]

    with counted(owner, "absent_topic"), pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    assert topic in owner.reasons("absent_topic")[-1]
    assert world.system.has_topic(topic)


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("malformed", encode("later")), ("oversized", b"x" * PLUGIN_LINE_BYTES_MAX + b"\n")],
)
def test_a_plugin_that_sends_what_is_no_message_loses_its_session(
    world: World, client: pulsar.Client, topic: str, kind: str, sent: bytes
) -> None:
    world.move_to(topic, MEDDLED)
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        before = world.meddled.sessions()
        with counted(world.meddled, kind):
            world.meddler.up = once(behind("alive", sent))
        until(lambda: world.meddled.sessions() > before)
        load.wait_acknowledged(100)

    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


def test_a_sidecar_with_the_node_id_of_another_takes_nothing_from_it(
    world: World, client: pulsar.Client, topic: str
) -> None:
    """1. The second broker's sidecar goes. 2. One with the first broker's node id comes. 3. The
    first broker keeps its session and its topic."""
    world.move_to(topic, MEDDLED)
    world.stock.sidecars[PLAIN].stop()
    voided = world.meddled.log.read_text(errors="replace").count("its units are void")
    thief = world.another_sidecar(PLAIN, NODE.format(MEDDLED))
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        until(lambda: thief.faults("node_id_taken") > 0)
        load.wait_acknowledged(500)

    assert len(thief.reasons("node_id_taken")) == 1
    assert "session is up" not in thief.log.read_text(errors="replace")
    assert world.meddled.log.read_text(errors="replace").count("its units are void") == voided
    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


def test_a_broker_that_keeps_a_topic_is_noticed_and_none_beside_it_acknowledges(
    world: World, client: pulsar.Client, topic: str
) -> None:
    """1. Its order to release the topic does not reach broker A, which serves on. 2. That is
    noticed. 3. A client wants to produce at B. Each fences the other's ledger, and only who gets
    the list of ledgers acknowledges. 4. The order arrives, and B serves the topic."""
    world.move_to(topic, MEDDLED)
    with world.system.client(world.stock.url(MEDDLED)) as loyal, steady(loyal, topic) as load:
        load.wait_acknowledged(100)
        with counted(world.meddled, "not_released"):
            world.meddler.down = without("release")
            world.move_to(topic, PLAIN)
            load.wait_acknowledged(100)
        assert topic in world.meddled.reasons("not_released")[-1]
        with suppress(pulsar.PulsarException):
            client.create_producer(topic).close()
        world.restore()
        # Without the id the client numbers its second message as the first again if B is fenced
        # before it has acknowledged that, and Pulsar's deduplication drops the second.
        successor = client.create_producer(
            topic, send_timeout_millis=SEND_TIMEOUT_MS, initial_sequence_id=0
        )
        send_all(successor, numbered(10))
        load.wait_acknowledged(100)

    contents = stored(client, topic)
    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(contents), load.outcome)
    assert [each for each in contents if not each.isdecimal()] == numbered(10)


def test_a_broker_that_confirms_nothing_loses_its_topics(
    world: World, client: pulsar.Client, topic: str
) -> None:
    world.move_to(topic, MEDDLED)
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        with counted(world.meddled, "unconfirmed"):
            world.meddler.up = without("synced")
            # Its release is confirmed by nobody, until the session is over.
            world.move_to(topic, PLAIN)
        load.wait_acknowledged(100)
    world.restore()

    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


def test_a_sidecar_that_sends_what_is_no_message_is_told_why(world: World) -> None:
    with counted(world.meddled, "refused"):
        world.meddler.down = once(behind("session", b"no JSON\n"))
        world.meddler.break_off()
    world.restore()


def test_a_session_that_a_later_one_replaced_is_refused(world: World, handed_over: str) -> None:
    cluster = json.loads(_seen(world, "hello"))["cluster"]
    world.stock.sidecars[PLAIN].stop()
    hello = {"protocol": PROTOCOL, "sidecar": NODE.format(PLAIN), "cluster": cluster}
    stale = encode("session", id="stale", epoch=0, ttl_ms=3_000)
    mine = encode("assign", topic=f"persistent://{handed_over}/stolen", epoch=99)

    answers = world.greeted_as(PLAIN, [encode("hello", **hello), stale, mine])

    assert answers[-1]["kind"] == "bye"
    assert "session stale of stock-2" in answers[-1]["why"]
    assert world.stock.logged(PLAIN, "session stale of stock-2") == 1


def _seen(world: World, kind: str) -> bytes:
    """Return a message of the first broker's sidecar."""
    seen: list[bytes] = []

    def note(line: bytes) -> list[bytes]:
        if json.loads(line)["kind"] == kind:
            seen.append(line)
        return [line]

    world.meddler.down = note
    world.begin_anew()
    return seen[0]
