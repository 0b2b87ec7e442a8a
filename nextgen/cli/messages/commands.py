"""``produce``, ``consume`` and ``read``: small, for people, over the stock Pulsar client.

Scalable topics have a client of our own."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from typing import Protocol as Structural

import typer

from nextgen.cli.console.command_run import run_blocking
from nextgen.cli.console.options import (
    PULSAR_SCHEME,
    DataDir,
    JsonFlag,
    ServiceUrl,
    local_plan_or_none,
    service_url_of,
)
from nextgen.cli.console.output import print_json, print_line
from nextgen.cli.console.protocol_check import Protocol, wrong_port
from nextgen.cli.messages.stock_client import (
    IN_FLIGHT_MAX,
    Acknowledged,
    Message,
    stock_client,
    text_of_id,
)
from nextgen.kernel.errors import Refused, RefusesToStart
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import Domain, parse_topic
from nextgen.tasks.interrupts import run


class MessageClient(Structural):
    """The stock client, or our own for scalable topics."""

    def send(
        self, contents: Iterable[bytes], *, key: str | None, in_flight_max: int
    ) -> Iterator[Acknowledged]: ...

    def consume(
        self, subscription: str, *, kind: str, earliest: bool, count: int, quiet_s: float
    ) -> Iterator[Message]: ...

    def read(self, *, earliest: bool, follow: bool, count: int) -> Iterator[Message]: ...


Topic = Annotated[str, typer.Argument(help="Topic name; any accepted form.")]
Count = Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many; 0: never.")]


class SubscriptionType(StrEnum):
    """How the consumers of a subscription share its messages."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    FAILOVER = "failover"
    KEY_SHARED = "key_shared"

    @property
    def client_name(self) -> str:
        """Its name in ``pulsar.ConsumerType``."""
        return {"key_shared": "KeyShared"}.get(self.value, self.value.capitalize())


class ReadFrom(StrEnum):
    """Where a reader begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(produce)
    app.command()(consume)
    app.command()(read)


def produce(
    topic: Topic,
    messages: Annotated[
        list[str] | None, typer.Argument(help="Texts. Default: the lines of standard input.")
    ] = None,
    key: Annotated[str, typer.Option("--key", "-k", help="Key of every message.")] = "",
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Send the texts so many times.")
    ] = 1,
    service_url: ServiceUrl = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Send messages; done when every one of them is acknowledged."""
    if not messages and count != 1:
        raise typer.BadParameter("only texts can be sent again", param_hint="--count")
    contents = _repeated(messages, count) if messages else _lines_of_standard_input()
    # Typed lines are acknowledged one by one.
    in_flight_max = 1 if not messages and sys.stdin.isatty() else IN_FLIGHT_MAX

    def use(client: MessageClient, name: str) -> None:
        acknowledged, last_id = 0, ""
        try:
            for one in client.send(contents, key=key or None, in_flight_max=in_flight_max):
                acknowledged, last_id = acknowledged + 1, one.message_id
                if json_output:
                    print_json({"topic": name, "number": one.number, "message_id": last_id})
        finally:
            if acknowledged and not json_output:
                print_line(f"{acknowledged} acknowledged by {name}, the last as {last_id}")

    _with_client(topic, service_url, data_dir, use)


def consume(
    topic: Topic,
    subscription: Annotated[str, typer.Option("--subscription", "-s", help="Its name.")],
    subscription_type: Annotated[
        SubscriptionType, typer.Option("--type", "-t", help="How its consumers share it.")
    ] = SubscriptionType.EXCLUSIVE,
    earliest: Annotated[
        bool,
        typer.Option("--earliest", help="If it is made by this: begin with what is stored."),
    ] = False,
    count: Count = 0,
    quiet_s: Annotated[
        float,
        typer.Option("--quiet-s", min=0.0, help="End when none came for so long; 0: never."),
    ] = 0.0,
    service_url: ServiceUrl = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show messages of a subscription as they come, and acknowledge each."""

    def use(client: MessageClient, name: str) -> None:
        _say_waiting(name)
        for message in client.consume(
            subscription,
            kind=subscription_type.client_name,
            earliest=earliest,
            count=count,
            quiet_s=quiet_s,
        ):
            _show(message, json_output)

    _with_client(topic, service_url, data_dir, use)


def read(
    topic: Topic,
    begin: Annotated[
        ReadFrom, typer.Option("--from", help="With 'latest' only what comes from here on.")
    ] = ReadFrom.EARLIEST,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as messages come.")] = False,
    count: Count = 0,
    service_url: ServiceUrl = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show the messages that a topic has, oldest first; no subscription is made or moved.

    The topic must exist: reading creates none.
    """
    is_earliest = begin is ReadFrom.EARLIEST
    # A reader that begins at the end of the topic has nothing to read.
    goes_on = follow or not is_earliest

    def use(client: MessageClient, name: str) -> None:
        if goes_on:
            _say_waiting(name)
        shown = 0
        for message in client.read(earliest=is_earliest, follow=goes_on, count=count):
            _show(message, json_output)
            shown += 1
        if not shown and not json_output:
            print_line(f"0 messages in {name}", stderr=True)

    _with_client(topic, service_url, data_dir, use, creates=False)


def _with_client(
    topic: str,
    service_url: str | None,
    data_dir: Path | None,
    use: Callable[[MessageClient, str], None],
    *,
    creates: bool = True,
) -> None:
    """Use the stock client for a topic. Unless the command ``creates`` it, the topic must exist."""

    from nextgen.cli.messages.topic_check import is_absent

    def work() -> None:
        parsed = parse_topic(topic)
        name = parsed.text
        url = service_url_of(service_url, data_dir)
        if service_url:
            _check_protocol(url)
        if parsed.domain is Domain.TOPIC:
            # Imported when it is needed: it takes longer than all the rest of the command.
            from nextgen.cli.messages.scalable_client import scalable_client

            with scalable_client(url, name) as own_client:
                use(own_client, name)
            return
        if not creates and run(is_absent(url, name)):
            raise Refused(RejectionCode.NOT_FOUND, f"there is no topic {name}")
        with stock_client(url, name) as client:
            use(client, name)

    run_blocking(work)


def _check_protocol(service_url: str) -> None:
    """Check that no address is one for gRPC or HTTP: the client would be silent for long.

    Raises:
        RefusesToStart: One is. The message names the right port.
    """
    addresses = service_url.removeprefix(PULSAR_SCHEME).split(",")
    if wrong := wrong_port(addresses, Protocol.PULSAR, local_plan_or_none()):
        raise RefusesToStart(wrong)


def _say_waiting(name: str) -> None:
    if sys.stderr.isatty():
        print_line(f"waiting on {name}; Ctrl-C ends it", stderr=True)


def _repeated(messages: Sequence[str], count: int) -> Iterator[bytes]:
    for _ in range(count):
        for message in messages:
            yield message.encode()


def _lines_of_standard_input() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _show(message: Message, json_output: bool) -> None:
    if json_output:
        print_json(_as_dict(message))
        return
    time = datetime.fromtimestamp(message.publish_timestamp() / 1000, tz=UTC)
    parts = [time.strftime("%H:%M:%S.%f")[:-3], text_of_id(message.message_id())]
    if message.partition_key():
        parts.append(f"key={message.partition_key()}")
    if message.redelivery_count():
        parts.append(f"delivered {message.redelivery_count() + 1} times")
    parts += [f"{name}={value}" for name, value in message.properties().items()]
    print_line("  ".join([*parts, message.data().decode("utf-8", "backslashreplace")]))


def _as_dict(message: Message) -> dict[str, Any]:
    data = message.data()
    try:
        content = {"data": data.decode("utf-8")}
    except UnicodeDecodeError:
        content = {"data_base64": base64.b64encode(data).decode("ascii")}
    return {
        "topic": message.topic_name(),
        "message_id": text_of_id(message.message_id()),
        "key": message.partition_key(),
        "properties": message.properties(),
        "publish_time_ms": message.publish_timestamp(),
        "redelivery_count": message.redelivery_count(),
        **content,
    }
