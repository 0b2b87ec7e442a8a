"""The stock Pulsar client as the command line uses it, against a client that is scripted."""

from __future__ import annotations

import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from nextgen.cli.messages.stock_client import SendFailed, StockClient, error_of, stock_client
from nextgen.kernel.errors import DeadlineExceeded, Refused, RefusesToStart, Unavailable
from nextgen.runtime.lifecycle.exit_code import ExitCode, code_of

TOPIC = "persistent://public/default/t"


class FakeMessageId:
    def __init__(self, entry: int) -> None:
        self._entry = entry

    def ledger_id(self) -> int:
        return 7

    def entry_id(self) -> int:
        return self._entry

    def partition(self) -> int:
        return -1

    def batch_index(self) -> int:
        return 2 if self._entry == 2 else -1


class FakeProducer:
    """Acknowledges all that wait once ``holds_back`` do, in a thread as the real one does."""

    def __init__(self, results: dict[int, str], holds_back: int) -> None:
        self._results = results
        self._holds_back = holds_back
        self._waiting: deque[Callable[[], None]] = deque()
        self._flushing = threading.Lock()
        self.sent: list[tuple[bytes, str | None]] = []
        self.most_waiting = 0

    def send_async(self, content: bytes, callback: Any, partition_key: str | None = None) -> None:
        entry = len(self.sent)
        result = SimpleNamespace(name=self._results.get(entry, "Ok"))
        self.sent.append((content, partition_key))
        self._waiting.append(lambda: callback(result, FakeMessageId(entry)))
        self.most_waiting = max(self.most_waiting, len(self._waiting))
        if len(self._waiting) == self._holds_back:
            threading.Thread(target=self.flush).start()

    def flush(self) -> None:
        with self._flushing:  # One at a time: the acknowledgements come in order.
            while self._waiting:
                self._waiting.popleft()()


class FakeConsumer:
    """Gives its messages, then nothing; also a reader."""

    def __init__(self, messages: list[str]) -> None:
        self._messages = deque(messages)
        self.acknowledged: list[str] = []
        self.is_closed = False

    def receive(self, timeout_millis: int) -> str:
        if not self._messages:
            raise pulsar.Timeout("nothing came")
        return self._messages.popleft()

    read_next = receive

    def has_message_available(self) -> bool:
        return bool(self._messages)

    def acknowledge(self, message: str) -> None:
        self.acknowledged.append(message)

    def close(self) -> None:
        self.is_closed = True


class FakeClient:
    def __init__(
        self, producer: FakeProducer | None = None, consumer: FakeConsumer | None = None
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self.asked: tuple[Any, ...] = ()

    def create_producer(self, *asked: Any, **_options: Any) -> FakeProducer | None:
        self.asked = asked
        return self._producer

    def subscribe(self, *asked: Any, **options: Any) -> FakeConsumer | None:
        self.asked = (*asked, options["consumer_type"], options["initial_position"])
        return self._consumer

    def create_reader(self, *asked: Any) -> FakeConsumer | None:
        self.asked = asked
        return self._consumer


def sending(
    count: int, *, results: dict[int, str] | None = None, holds_back: int = 1, **options: Any
) -> tuple[FakeProducer, Any]:
    producer = FakeProducer(results or {}, holds_back)
    client = StockClient(pulsar, FakeClient(producer), TOPIC)
    contents = [f"m-{number}".encode() for number in range(count)]
    return producer, client.send(contents, key="k", **options)


def receiving(*messages: str) -> tuple[FakeConsumer, FakeClient, StockClient]:
    consumer = FakeConsumer(list(messages))
    client = FakeClient(consumer=consumer)
    return consumer, client, StockClient(pulsar, client, TOPIC)


def test_every_message_is_sent_with_its_key_and_given_back_with_its_id():
    producer, acknowledged = sending(4)

    given = [(one.number, one.message_id) for one in acknowledged]

    assert given == [(0, "7:0:-1"), (1, "7:1:-1"), (2, "7:2:-1:2"), (3, "7:3:-1")]
    assert producer.sent[3] == (b"m-3", "k")


def test_no_more_than_the_limit_is_in_flight():
    producer, acknowledged = sending(52, holds_back=5, in_flight_max=5)

    assert [one.number for one in acknowledged] == list(range(52))
    assert producer.most_waiting == 5


def test_the_first_message_that_is_refused_ends_it():
    _, acknowledged = sending(5, results={2: "ProducerBlockedQuotaExceededError"})

    assert [next(acknowledged).number for _ in range(2)] == [0, 1]
    with pytest.raises(SendFailed, match="ProducerBlockedQuotaExceededError"):
        next(acknowledged)


def test_a_message_is_acknowledged_when_the_next_is_asked_for():
    consumer, client, stock = receiving("a", "b")
    messages = stock.consume("s", kind="KeyShared", earliest=True, count=2, quiet_s=0.0)

    assert next(messages) == "a"
    assert consumer.acknowledged == []
    assert next(messages) == "b"
    assert consumer.acknowledged == ["a"]
    assert list(messages) == []

    assert consumer.acknowledged == ["a", "b"]
    assert consumer.is_closed
    assert client.asked == (
        *(TOPIC, "s", pulsar.ConsumerType.KeyShared),
        pulsar.InitialPosition.Earliest,
    )


def test_a_topic_that_falls_quiet_ends_it_and_is_an_error_if_more_was_wanted():
    _, _, stock = receiving("a")
    wanted = {"kind": "Shared", "earliest": False, "quiet_s": 0.001}
    assert list(stock.consume("s", count=0, **wanted)) == ["a"]

    _, _, stock = receiving("a")
    with pytest.raises(DeadlineExceeded, match="1 of 2 messages"):
        list(stock.consume("s", count=2, **wanted))


def test_reading_ends_at_the_end_of_the_topic_or_after_so_many():
    consumer, client, stock = receiving("a", "b", "c")

    assert list(stock.read(earliest=True, follow=False, count=2)) == ["a", "b"]
    assert list(stock.read(earliest=False, follow=False, count=0)) == ["c"]
    assert consumer.is_closed
    assert client.asked == (TOPIC, pulsar.MessageId.latest)


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("TopicNotFound", Refused, ExitCode.REFUSED),
        ("ConsumerBusy", Refused, ExitCode.REFUSED),
        ("ProducerBlockedQuotaExceededError", Refused, ExitCode.REFUSED),
        ("Timeout", DeadlineExceeded, ExitCode.NO_ANSWER),
        ("ConnectError", Unavailable, ExitCode.NO_ANSWER),
        ("BrokerMetadataError", Unavailable, ExitCode.NO_ANSWER),
    ],
)
def test_an_error_of_the_client_is_a_sentence_about_the_topic(
    name: str, kind: type[Exception], code: ExitCode
):
    error = error_of(name, TOPIC, "pulsar://h:1")

    assert type(error) is kind
    assert TOPIC in str(error)
    assert code_of(error) == code


def test_without_the_client_installed_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pulsar", None)

    with pytest.raises(RefusesToStart, match="run make setup in"):
        stock_client("pulsar://127.0.0.1:1", TOPIC).__enter__()


def test_where_nobody_listens_it_says_so_at_once():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # Nobody else can listen there meanwhile.
        url = f"pulsar://127.0.0.1:{silent.getsockname()[1]}"

        with pytest.raises(Unavailable, match=f"no process listens at {url}"):
            stock_client(url, TOPIC).__enter__()


def test_errors_inside_become_errors_of_this_project():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"pulsar://127.0.0.1:{server.getsockname()[1]}"

        with pytest.raises(Refused, match="there is no topic"), stock_client(url, TOPIC):
            raise pulsar.TopicNotFound("Pulsar error: TopicNotFound")
        with pytest.raises(Refused, match="backlog"), stock_client(url, TOPIC):
            raise SendFailed("ProducerBlockedQuotaExceededError")
        with pytest.raises(KeyboardInterrupt), stock_client(url, TOPIC):
            raise pulsar.Interrupted("Pulsar error: Interrupted")
