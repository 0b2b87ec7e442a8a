"""What must not be, between a stock broker and its sidecar: each has a line and a count, and no
topic two owners that acknowledge."""

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
from tests.support.stock.meddler import Change, behind, once, unchanged, with_fields, without
from tests.support.stock.pair import (
    COMES_ABOUT_S,
    MEDDLED,
    NAMESPACE,
    PLAIN,
    Pair,
    running_pair,
    until,
)

STRANGER = 65_534

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture
def client(pair: Pair) -> Iterator[pulsar.Client]:
    with pair.system.client() as opened:
        yield opened


@pytest.fixture
def topic(pair: Pair, client: pulsar.Client, request: pytest.FixtureRequest) -> str:
    """A topic of which Pulsar keeps all messages."""
    name = f"persistent://{NAMESPACE}/{request.node.name.partition('[')[0]}-{id(request)}"
    pair.system.create_topics([name])
    client.subscribe(name, "keeps", initial_position=InitialPosition.Earliest).close()
    return name


@pytest.fixture(autouse=True)
def healed(pair: Pair) -> Iterator[None]:
    """Nothing that a test did, and nobody that it started, is there for the next one."""
    yield
    pair.meddler.up = pair.meddler.down = unchanged
    while pair.others:
        pair.others.pop().stop()
    if pair.stock.sidecars[PLAIN].process.poll() is not None:
        pair.stock.start_sidecar(PLAIN)
        pair.stock.wait_commanded(PLAIN)


@contextmanager
def counted(sidecar: RunningSidecar, kind: str) -> Iterator[None]:
    """Do something after which a fault of this kind is counted, and a line says why."""
    faults, lines = sidecar.faults(kind), len(sidecar.reasons(kind))
    yield
    until(lambda: sidecar.faults(kind) > faults, f"no fault {kind} is counted")
    assert len(sidecar.reasons(kind)) > lines


def steady(client: pulsar.Client, topic: str) -> SteadyProducer:
    producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
    return SteadyProducer(producer, in_flight_max=200, pause_ms=1)


def stored(client: pulsar.Client, topic: str) -> list[str]:
    return texts(read_all(client.create_reader(topic, MessageId.earliest)))


def numbers(contents: list[str]) -> list[int]:
    return [int(each) for each in contents if each.isdecimal()]


@pytest.mark.parametrize(
    ("kind", "up"),
    [
        ("other_protocol", with_fields("hello", protocol=PROTOCOL + 1)),
        ("other_release", with_fields("hello", built_for="4.0.0")),
    ],
)
def test_a_broker_whose_plugin_is_of_another_version_gets_no_topics(
    pair: Pair, client: pulsar.Client, topic: str, kind: str, up: Change
) -> None:
    pair.place(topic, MEDDLED)
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        with counted(pair.meddled, kind):
            pair.meddler.up = up
            pair.meddler.break_off()
        until(lambda: pair.owner(topic) == PLAIN)
        load.wait_acknowledged(100, timeout_s=COMES_ABOUT_S)
    pair.restore()

    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("malformed", encode("later")), ("oversized", b"x" * PLUGIN_LINE_BYTES_MAX + b"\n")],
)
def test_a_plugin_that_sends_what_is_no_message_loses_its_session(
    pair: Pair, client: pulsar.Client, topic: str, kind: str, sent: bytes
) -> None:
    pair.place(topic, MEDDLED)
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        before = pair.meddled.sessions()
        with counted(pair.meddled, kind):
            pair.meddler.up = once(behind("alive", sent))
        until(lambda: pair.meddled.sessions() > before)
        load.wait_acknowledged(100, timeout_s=COMES_ABOUT_S)
    pair.restore()

    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


def test_a_sidecar_that_sends_what_is_no_message_is_told_why(pair: Pair) -> None:
    with counted(pair.meddled, "refused"):
        pair.meddler.down = once(behind("session", b"no JSON\n"))
        pair.meddler.break_off()
    pair.restore()


def test_fields_of_a_later_release_change_nothing(
    pair: Pair, client: pulsar.Client, topic: str
) -> None:
    later: Change = with_fields("", later={"a": [1]})
    pair.meddler.up = pair.meddler.down = later
    pair.begin_anew()
    pair.place(topic, MEDDLED)
    send_all(client.create_producer(topic), numbered(10))
    pair.place(topic, PLAIN)
    pair.place(topic, MEDDLED)
    pair.restore()

    assert stored(client, topic) == numbered(10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_a_process_of_another_user_may_not_command_a_broker(pair: Pair) -> None:
    """The file keeps it out. Where somebody has opened that, the plug-in knows whose process it is;
    that it refuses before it looks whether it is commanded already."""
    path = pair.stock.socket(PLAIN)
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
    pair: Pair, client: pulsar.Client, topic: str
) -> None:
    pair.place(topic, PLAIN)
    second = pair.another_sidecar(PLAIN, "stock-2-again")
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        until(lambda: any("commands it" in each for each in second.reasons("second_sidecar")))
        assert second.faults("second_sidecar") > 0
        assert len(second.reasons("second_sidecar")) == 1
        load.wait_acknowledged(100)
        assert pair.system.owner(topic) == NODE.format(PLAIN)

        pair.stock.sidecars[PLAIN].kill()
        until(lambda: "session is up" in second.log.read_text(errors="replace"))
        load.wait_acknowledged(100, timeout_s=COMES_ABOUT_S)

    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


def test_a_sidecar_with_the_node_id_of_another_takes_nothing_from_it(
    pair: Pair, client: pulsar.Client, topic: str
) -> None:
    """1. The second broker's sidecar goes. 2. One with the first broker's node id comes. 3. The
    first broker keeps its session and its topic."""
    pair.place(topic, MEDDLED)
    pair.stock.sidecars[PLAIN].stop()
    voided = pair.meddled.log.read_text(errors="replace").count("its units are void")
    thief = pair.another_sidecar(PLAIN, NODE.format(MEDDLED))
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        until(lambda: thief.faults("node_id_taken") > 0)
        load.wait_acknowledged(500)

    assert len(thief.reasons("node_id_taken")) == 1
    assert "session is up" not in thief.log.read_text(errors="replace")
    assert pair.meddled.log.read_text(errors="replace").count("its units are void") == voided
    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


def test_a_session_that_a_later_one_replaced_is_refused(pair: Pair) -> None:
    cluster = json.loads(_seen(pair, "hello"))["cluster"]
    pair.stock.sidecars[PLAIN].stop()
    hello = {"protocol": PROTOCOL, "sidecar": NODE.format(PLAIN), "cluster": cluster}
    stale = encode("session", id="stale", epoch=0, ttl_ms=3_000)
    mine = encode("assign", topic=f"persistent://{NAMESPACE}/stolen", epoch=99)

    answers = pair.greeted_as(PLAIN, [encode("hello", **hello), stale, mine])

    assert answers[-1]["kind"] == "bye"
    assert "session stale of stock-2" in answers[-1]["why"]
    assert pair.stock.logged(PLAIN, "session stale of stock-2") == 1


def _seen(pair: Pair, kind: str) -> bytes:
    """Return a message of the first broker's sidecar."""
    seen: list[bytes] = []

    def note(line: bytes) -> list[bytes]:
        if json.loads(line)["kind"] == kind:
            seen.append(line)
        return [line]

    pair.meddler.down = note
    pair.begin_anew()
    pair.restore()
    return seen[0]


def test_a_broker_that_keeps_a_topic_is_noticed_and_none_beside_it_acknowledges(
    pair: Pair, client: pulsar.Client, topic: str
) -> None:
    """1. Its order to release the topic does not reach broker A, which serves on. 2. That is
    noticed. 3. A client wants to produce at B. Each fences the other's ledger, and only who gets
    the list of ledgers acknowledges. 4. The order arrives, and B serves the topic."""
    pair.place(topic, MEDDLED)
    with pair.system.client(pair.stock.url(MEDDLED)) as loyal, steady(loyal, topic) as load:
        load.wait_acknowledged(100)
        with counted(pair.meddled, "not_released"):
            pair.meddler.down = without("release")
            pair.place(topic, PLAIN)
            load.wait_acknowledged(100)
        assert topic in pair.meddled.reasons("not_released")[-1]
        with suppress(pulsar.PulsarException):
            client.create_producer(topic).close()
        pair.restore()
        successor = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
        at = dict(zip(numbered(10), map(str, send_all(successor, numbered(10))), strict=True))
        load.wait_acknowledged(100, timeout_s=COMES_ABOUT_S)

    contents = stored(client, topic)
    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(contents), load.outcome)
    assert [each for each in contents if not each.isdecimal()] == numbered(10), (
        f"acknowledged at {at}; {pair.ledgers(topic)}"
    )


def test_a_broker_that_confirms_nothing_loses_its_topics(
    pair: Pair, client: pulsar.Client, topic: str
) -> None:
    pair.place(topic, MEDDLED)
    with steady(client, topic) as load:
        load.wait_acknowledged(100)
        with counted(pair.meddled, "unconfirmed"):
            pair.meddler.up = without("synced")
            # Its release is confirmed by nobody, until the session is over.
            pair.place(topic, PLAIN)
        load.wait_acknowledged(100, timeout_s=COMES_ABOUT_S)
    pair.restore()

    assert load.outcome.failed == {}
    assert_stored_once_in_order(numbers(stored(client, topic)), load.outcome)


def test_a_topic_that_pulsar_does_not_have_is_named(pair: Pair, client: pulsar.Client) -> None:
    namespace = "acme/closed"
    pair.stock.hand_over(namespace)
    pair.system.create_namespace(namespace, FOR_STOCK)
    pair.stock.admin(
        "POST", f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False}
    )
    topic = f"persistent://{namespace}/absent"
    pair.system.create_topics([topic])
    owner = pair.stock.sidecars[pair.owner(topic)]

    with counted(owner, "absent_topic"), pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    assert topic in owner.reasons("absent_topic")[-1]
    assert pair.system.has_topic(topic)
