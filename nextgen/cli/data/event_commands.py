"""``events``: shows and follows the log of one shard, and lists the readers that pin it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import as_dict, counted, print_json, print_line, print_table
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    PositionCompacted,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.stream import POSITION_MAX
from nextgen.kernel.routing.names import PARTITION_SUFFIX, parse_namespace, parse_topic
from nextgen.runtime.lifecycle.exit_code import CheckFailed

if TYPE_CHECKING:
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.kernel.routing.slots import SlotTable
    from protos.nextgen.v1.events_pb2 import Event

ITEMS_SHOWN_MAX = 8
"""Items of a list or map in a line; ``--json`` has all."""

VALUE_CHARACTERS_MAX = 80
"""Characters of one value in a line."""

LINE_CHARACTERS_MAX = 400
"""Characters of an event's fields in a line: five lines of a terminal."""

_COUNTED = ("broker_load_reported", "segment_loads_recorded")
"""Types that are only counted, unless they are asked for: brokers report again and again."""

LIMIT_MAX = 2**32 - 1
"""Largest ``--limit``: the request has 32 bits for it."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(events)


def events(
    shard_or_name: Annotated[
        str,
        typer.Argument(
            metavar="SHARD|NAME",
            help="Shard id (0: the cluster manager), or a tenant, namespace or topic: then the "
            "events about it, from its shard.",
        ),
    ],
    position: Annotated[
        str,
        typer.Option("--from", help="First position, as a number or SHARD:POSITION.", metavar="N"),
    ] = "1",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events commit.")] = False,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="For example topic_created. Repeatable.")
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", help="Only events about names that begin so.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=0, max=LIMIT_MAX, help="At most so many; 0: all.")
    ] = 0,
    prefer_follower: Annotated[
        bool, typer.Option("--prefer-follower", help="Spare the leader if a follower answers.")
    ] = False,
    readers: Annotated[
        bool, typer.Option("--readers", help="Show who keeps the log, at each replica, and end.")
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show the committed events of a shard, oldest first; with --json one a line.

    Those about a topic that was renamed are shown from its beginning, whatever it was called.
    A position printed as SHARD:POSITION can be given back to --from. Lines are summaries, and load
    reports are only counted: --json, or their --type, shows them.
    """

    async def work() -> None:
        nodes = endpoints_of(target, data_dir)
        nothing = ""
        async with aclosing(_subjects(shard_or_name, nodes)) as subjects:
            async for subject in subjects:
                if readers:
                    await _show_readers(nodes, subject.shard_id, json_output=json_output)
                    return
                nothing = await show(nodes, subject)
                if not nothing:
                    return
        if not json_output and (is_terminal() or not shard_or_name.isdecimal()):
            print_line(nothing)

    async def show(nodes: Sequence[str], subject: _Subject) -> str:
        from nextgen.client.log.reader import ShardLogReader

        first = _position_of(position, subject.shard_id)
        reader = ShardLogReader(
            nodes,
            subject.shard_id,
            prefer_follower=prefer_follower,
            types=types or (),
            key_prefix=prefix or subject.prefix,
        )
        hidden = frozenset() if json_output or types else frozenset(_COUNTED)
        pages = reader.pages(first, follow=follow, limit=limit)
        return await _show_events(pages, subject, first, hidden, json_output=json_output)

    run_command(work())


async def _show_events(
    pages: AsyncGenerator[Any, None],
    subject: _Subject,
    first: int,
    hidden: AbstractSet[str],
    *,
    json_output: bool,
) -> str:
    """Print the events of ``pages`` that are about ``subject``.

    Those of the ``hidden`` types are only counted. Returns a sentence if there are none.

    Raises:
        Refused: The log was cut behind ``first``. CheckFailed: It is not dense.
    """
    from nextgen.client.log.reader import LogNotDense

    shown, left_out, end = 0, 0, first
    try:
        async with aclosing(pages):
            async for page in pages:
                events = [each for each in page.events if subject.is_of(each)]
                printed = _print_events(events, hidden, json_output=json_output)
                shown, end = shown + len(events), page.next_position
                left_out += len(events) - printed
    except PositionCompacted as error:
        raise _with_advice(error, subject.shard_id) from error
    except LogNotDense as error:
        raise CheckFailed(str(error)) from error
    if left_out:
        types = " or ".join(_COUNTED)
        print_line(f"{counted(left_out, 'load report')} not shown: see --type {types}", stderr=True)
    return "" if shown else _nothing(subject.shard_id, first, end, subject.name)


def is_terminal() -> bool:
    """Return whether the output goes to a terminal."""
    return sys.stdout.isatty()


def _position_of(text: str, shard: int) -> int:
    """Return the position in ``--from``.

    Raises:
        InvalidRequest: It is malformed, or of another shard.
    """
    before, colon, number = text.rpartition(":")
    if not number.isdecimal() or (colon and not before.isdecimal()):
        raise InvalidRequest(f"--from {text} is no position: it must be N or SHARD:N")
    if colon and int(before) != shard:
        raise InvalidRequest(
            f"position {text} is of shard {int(before)}, and shard {shard} was asked for: "
            f"positions of different shards have nothing to do with each other"
        )
    position = int(number)
    if position > POSITION_MAX:
        raise InvalidRequest(f"--from {text} is no position: the highest is {POSITION_MAX}")
    return max(1, position)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What events are shown of: a shard, and in it all events, or those about an object."""

    shard_id: int
    name: str = ""
    """Of the object; "" for all events."""
    topic_id: str = ""
    """Of a topic that was renamed: its events by ``other_names`` are shown too."""
    other_names: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """How all keys of its events begin."""
        # What the first and the last in order have in common, all between them have.
        first, last = (pick((self.name, *self.other_names)) for pick in (min, max))
        same = (place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
        return first[: next(same, len(first))]

    def is_of(self, event: Any) -> bool:
        """Return whether ``event`` is about the object, or a partition of it."""
        from nextgen.cli.calls.shard_history import topic_id_of

        if not self.name or _is_about(event, self.name):
            return True
        return any(_is_about(event, name) for name in self.other_names) and (
            topic_id_of(event) in ("", self.topic_id)
        )


async def _subjects(given: str, nodes: Sequence[str]) -> AsyncGenerator[_Subject, None]:
    """Yield what to read until one has events.

    Only a single word can mean two things: a tenant or a topic.

    Raises:
        InvalidName: ``given`` is neither a shard id nor a name.
        Unavailable: No shard map is known yet.
    """
    if given.isdecimal():
        yield _Subject(int(given))
        return
    for name, key in _names_and_keys(given):
        yield await _subject(name, key, nodes)


async def _subject(name: str, key: str, nodes: Sequence[str]) -> _Subject:
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.kernel.routing.slots import SlotTable
    from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

    async with DiscoveryClient(nodes) as client:
        shard_map = (await client.call("GetCluster", GetClusterRequest())).shard_map
        if not shard_map.slot_owners:
            raise Unavailable("discovery knows no shard map yet")
        table = SlotTable.from_bytes(shard_map.version, shard_map.slot_owners)
        renamed = await _renamed(client, nodes, table, name)
        return renamed or _Subject(table.shard_for_key(key), name)


async def _renamed(
    client: DiscoveryClient, nodes: Sequence[str], table: SlotTable, name: str
) -> _Subject | None:
    """Return the topic that has this name, or had it last, with all its names; None unless it was
    ever renamed."""
    from nextgen.cli.calls.shard_history import home_slot, last_topic, read_log, read_names
    from protos.nextgen.v1.discovery_service_pb2 import GetObjectRequest

    if "://" not in name:
        return None
    parsed = parse_topic(name)
    request = GetObjectRequest(name=parsed.base_text)
    found = (await client.call("GetTopic", request)).item
    if found.HasField("topic"):
        topic = found.topic if found.topic.former_names else None
    else:
        topic = await last_topic(nodes, table, parsed)
    if topic is None:
        return None
    shard_id = table.shard_of(home_slot(topic, parsed.routing_key))

    async def read(each: str) -> list[Event]:
        return [event async for event in read_log(nodes, shard_id, ("topic_renamed",), each)]

    names = [parse_topic(each) for each in (await read_names(topic, read))[0]]
    if parsed.partition is not None:
        names = [each.of_partition(parsed.partition) for each in names]
    others = tuple(each.text for each in names if each.text != name)
    return _Subject(shard_id, name, topic.topic_id, others)


def _names_and_keys(given: str) -> list[tuple[str, str]]:
    """Return the names that events about ``given`` begin with, and the keys of their shards."""
    if "/" in given and "://" not in given and given.count("/") == 1:
        namespace = parse_namespace(given).text
        return [(namespace, namespace)]
    topic = parse_topic(given)
    of_topic = (topic.text, topic.routing_key)
    return [of_topic] if "/" in given else [(given, given), of_topic]


def _is_about(event: Any, name: str) -> bool:
    """Return whether ``event`` is about the named object, or a partition of it."""
    from nextgen.client.log.event_keys import event_keys

    partition = f"{name}{PARTITION_SUFFIX}"
    return any(key == name or key.startswith(partition) for key in event_keys(event))


def _print_events(events: Sequence[Any], hidden: AbstractSet[str], *, json_output: bool) -> int:
    """Print events but those of the ``hidden`` types; return how many were printed."""
    printed = 0
    for event in events:
        if json_output:
            print_json(as_dict(event))
        elif event.WhichOneof("payload") in hidden:
            continue
        else:
            print_line(_line(event))
        printed += 1
    return printed


def _with_advice(error: PositionCompacted, shard: int) -> Refused:
    """Return the refusal with advice in terms of the command line."""
    return Refused(
        RejectionCode.NOT_FOUND,
        f"position {error.asked} of shard {shard} is no longer in the log: the oldest is "
        f"{error.oldest}, read on with --from {shard}:{error.oldest}; what happened before is in "
        f"the snapshot of position {error.snapshot_position} that nextgen watch begins with",
    )


def _nothing(shard: int, first: int, end: int, name: str) -> str:
    looked_at = end - first
    if name:
        return f"no event of shard {shard} from {first} to {max(first, end - 1)} is about {name}"
    if not looked_at:
        return f"shard {shard} has no event at {first} or behind it yet"
    return f"none of the {looked_at} events of shard {shard} from {first} to {end - 1} matches"


async def _show_readers(nodes: Sequence[str], shard: int, *, json_output: bool) -> None:
    from nextgen.client.log.reader import log_readers

    rows: list[tuple[object, ...]] = []
    for node_id, answer in sorted((await log_readers(nodes, shard)).items()):
        if isinstance(answer, MetadataError):
            if json_output:
                print_json({"node": node_id, "error": str(answer)})
            rows.append((node_id, "-", "-", "-", "-", f"no answer: {answer}"))
            continue
        if json_output:
            print_json({"node": node_id, **as_dict(answer)})
        oldest = answer.oldest_position
        rows += [
            (
                node_id,
                oldest,
                reader.reader_id,
                reader.position,
                round(reader.expires_in_ms / 1000, 1),
                "broken: the log was cut before it" if reader.is_broken else "",
            )
            for reader in answer.readers
        ] or [(node_id, oldest, "-", "-", "-", "no named reader")]
    if not json_output:
        columns = ("node", "oldest", "reader", "position", "expires in s", "")
        print_table(f"Named readers of shard {shard}", columns, rows)


def _line(event: Any) -> str:
    kind = event.WhichOneof("payload") or "unknown"
    payload = as_dict(getattr(event, kind)) if kind != "unknown" else {}
    time = datetime.fromtimestamp(event.time_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    text = " ".join(f"{key}={_value(value)}" for key, value in payload.items() if value)
    text = shortened(text, LINE_CHARACTERS_MAX)
    return f"{event.shard_id}:{event.position:<8} {time[:-3]} term {event.term} {kind} {text}"


def _value(value: Any) -> str:
    """Return a short form: of many items the first ones and their number."""
    if isinstance(value, dict):
        items = [f"{key}:{_value(one)}" for key, one in value.items()]
        return "{" + _first(items) + "}"
    if isinstance(value, list):
        return "[" + _first([_value(one) for one in value[: ITEMS_SHOWN_MAX + 1]], len(value)) + "]"
    return shortened(str(value), VALUE_CHARACTERS_MAX)


def _first(items: Sequence[str], count: int | None = None) -> str:
    count = len(items) if count is None else count
    if count <= ITEMS_SHOWN_MAX:
        return ",".join(items)
    return f"{','.join(items[:ITEMS_SHOWN_MAX])}, … {count:,} in all"
