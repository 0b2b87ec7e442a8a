"""``topics pin``, ``topics unpin`` and ``topics why``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_blocking, run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target
from nextgen.cli.console.output import as_dict, print_json, print_line
from nextgen.cli.topics.inventory_commands import EFFECTIVE_TIMEOUT_MS, endpoints, topics_group
from nextgen.kernel.errors import DeadlineExceeded, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.runtime.lifecycle.exit_code import ExitCode, print_error
from nextgen.tasks.timeouts import timeout

if TYPE_CHECKING:
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.topics.why import Chain
    from nextgen.client.watch_model import Assignment, Change
    from protos.nextgen.v1.events_pb2 import Event
    from protos.nextgen.v1.inventory_pb2 import LookupAnswer
    from protos.nextgen.v1.policies_pb2 import Policies

ASKED_BY = "pin"
"""The origin that is stored in the events of the moves."""

PLACES_TIMEOUT_MS = 15_000
"""Time-out for locating a topic's units: without a leader the stream would wait for ever."""

Topic = Annotated[str, typer.Argument(help="Topic name; any accepted form.")]
Effective = Annotated[
    bool, typer.Option("--effective", help="Return once all subscribed brokers have the rule.")
]


def register(_app: typer.Typer) -> None:
    """Add the commands to the group of topics."""
    topics_group.command("pin")(pin)
    topics_group.command("unpin")(unpin)
    topics_group.command("why")(why)


def pin(
    topic: Topic,
    brokers: Annotated[list[str], typer.Argument(help="Ids of the brokers it may be on.")],
    effective: Effective = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Restrict a topic to these brokers, and move it to one of them if necessary.

    A broker that the cluster never had is refused, and so are brokers of which none is alive while
    the topic is served. If a move is refused, the rule that was there before is put back. Else the
    rule holds until it is removed. A move that takes longer than the command waits continues, and
    the exit code is 3.
    """
    nodes = endpoints(target, data_dir)
    name = run_blocking(lambda: _whole(topic))
    rule = run_command(_set_rule(nodes, name, brokers, effective=effective))
    try:
        answers = run_command(_move_there(nodes, name, brokers))
    except typer.Exit:
        print_error(f"the rule stands; for where it is now see: nextgen topics why {name.text}")
        raise
    if _is_refused(answers):
        run_command(_put_back(nodes, name, rule))
    if json_output:
        moved = [as_dict(answer) for answer in answers]
        pinned = list(rule.before) if _is_refused(answers) else brokers
        print_json({"topic": topic, "pinned_brokers": pinned, "moves": moved})
    else:
        _print_pinned(name, brokers, answers)
    _end_pin(answers)


@dataclass(slots=True)
class _Rule:
    """A change of ``pinned_brokers`` that was made."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    response: Any


async def _put_back(nodes: Sequence[str], name: TopicName, rule: _Rule) -> None:
    """Undo ``rule``, unless another one was set meanwhile."""
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.topics.policy_commands import alter_policies

    def alter(policies: Policies) -> None:
        if tuple(policies.placement.pinned_brokers) == rule.after:
            _set_pinned(policies, rule.before)

    async with DiscoveryClient(nodes, timeout_ms=EFFECTIVE_TIMEOUT_MS) as client:
        await alter_policies(client, name.text, alter)


def _set_pinned(policies: Policies, brokers: Sequence[str]) -> None:
    policies.placement.ClearField("pinned_brokers")
    policies.placement.pinned_brokers.extend(brokers)
    if not policies.placement.ByteSize():
        policies.ClearField("placement")


async def _set_rule(
    nodes: Sequence[str], name: TopicName, brokers: Sequence[str], *, effective: bool
) -> _Rule:
    """Let a topic be on these brokers only; on any, if there are none."""
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.topics.policy_commands import alter_policies

    before: tuple[str, ...] = ()

    def alter(policies: Policies) -> None:
        nonlocal before
        before = tuple(policies.placement.pinned_brokers)
        _set_pinned(policies, brokers)

    async with DiscoveryClient(nodes, timeout_ms=EFFECTIVE_TIMEOUT_MS) as client:
        response = await alter_policies(client, name.text, alter, effective=effective)
    return _Rule(before, tuple(brokers), response)


async def _move_there(
    nodes: Sequence[str], name: TopicName, brokers: Sequence[str]
) -> list[LookupAnswer]:
    """Move the units of a topic that are at forbidden brokers."""
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.topics.move_commands import MOVE_TIMEOUT_MS
    from nextgen.cli.topics.moves import ask_moves
    from protos.nextgen.v1.shard_service_pb2 import TopicMove

    async with DiscoveryClient(nodes, timeout_ms=MOVE_TIMEOUT_MS) as client:
        # With its epoch a unit moves once, however often the request has to be repeated.
        moves = [
            TopicMove(topic=place.name, expected_epoch=place.epoch, asked_by=ASKED_BY)
            for place in await _places(nodes, client, name)
            if place.broker_id not in brokers
        ]
        return await ask_moves(client, moves)


def _is_refused(answers: Sequence[LookupAnswer]) -> bool:
    """Return whether the rules refused a move: a topic is where its rule would not let it be."""
    from nextgen.cli.topics.moves import exit_code_of

    return exit_code_of(answers) is ExitCode.REFUSED


def _print_pinned(name: TopicName, brokers: Sequence[str], answers: Sequence[LookupAnswer]) -> None:
    said = [] if _is_refused(answers) else [f"{name.text} may be on {', '.join(brokers)} only"]
    if not answers:
        said.append("no unit of it is elsewhere")
    said += [f"{each.topic} went to {each.broker_id}" for each in answers if each.broker_id]
    for line in said:
        print_line(line)


def _end_pin(answers: Sequence[LookupAnswer]) -> None:
    """Print the units that did not move; end the process if there are any."""
    from nextgen.cli.topics.moves import exit_code_of, why_not_done

    rule = "the rule is taken back" if _is_refused(answers) else "the rule stands"
    for answer in answers:
        if answer.rejection_code:
            what = "is not known to have moved" if answer.under_way else "stays where it is"
            print_error(f"{answer.topic} {what}: {why_not_done(answer)}; {rule}")
    if (code := exit_code_of(answers)) is not ExitCode.DONE:
        raise typer.Exit(code)


def unpin(
    topic: Topic,
    effective: Effective = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Take the rule back. The topic stays where it is until something moves it."""
    nodes = endpoints(target, data_dir)
    name = run_blocking(lambda: _whole(topic))
    rule = run_command(_set_rule(nodes, name, (), effective=effective))
    if json_output:
        print_json({"topic": topic, **as_dict(rule.response)})
    else:
        print_line(
            f"{name.text} is pinned to no broker and stays where it is",
        )


def why(
    topic: Topic,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show why a topic, or one partition, is where it is: the events behind it and their reasons.

    All of it is read from the logs of the shards, with the times at which it was decided.
    """
    nodes = endpoints(target, data_dir)
    chain = run_command(_why(nodes, parse_topic(topic)))
    if json_output:
        print_json(asdict(chain))
        return
    from nextgen.cli.topics.why import lines

    for line in lines(chain):
        print_line(line)


async def _why(nodes: Sequence[str], name: TopicName) -> Chain:
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.calls.shard_history import home_slot, read_history, read_names
    from nextgen.cli.topics.why import CAUSE_EVENTS, TOPIC_EVENTS, broker_ids, chain_of
    from nextgen.kernel.routing.hashing import slot_of
    from nextgen.kernel.routing.slots import SlotTable
    from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest, GetObjectRequest

    async with DiscoveryClient(nodes) as client:
        found = await client.call("GetTopic", GetObjectRequest(name=name.base_text))
        cluster = await client.call("GetCluster", GetClusterRequest())
    _check_one_unit(name, found.item)
    table = SlotTable.from_bytes(cluster.shard_map.version, cluster.shard_map.slot_owners)
    slot = home_slot(found.item.topic, name.routing_key)
    texts, own = await read_names(
        found.item.topic, lambda each: read_history(nodes, table, slot, TOPIC_EVENTS, each)
    )
    names = [parse_topic(text) for text in texts]
    if name.partition is not None:
        names = [each.of_partition(name.partition) for each in names]
    present, *former = [each.text for each in names]
    parents = dict.fromkeys(key for each in names for key in (each.tenant, each.namespace_text))
    causes: list[Event] = []
    for key in (*parents, *broker_ids(present, own, former)):
        found_of_key = await read_history(nodes, table, slot_of(key), CAUSE_EVENTS)
        causes += [event for event in found_of_key if not event.HasField("slots_adopted")]
    return chain_of(present, (*parents, *texts), own, causes, former)


async def _places(
    nodes: Sequence[str], client: DiscoveryClient, name: TopicName
) -> list[Assignment]:
    """Return the present assignments of a topic's units, without assigning any.

    Raises:
        DeadlineExceeded: The topic's shard does not report them; it may have no leader.
    """
    from nextgen.client.client import Client
    from nextgen.client.watch_model import ChangeKind
    from protos.nextgen.v1.discovery_service_pb2 import GetObjectRequest

    found = await client.call("GetTopic", GetObjectRequest(name=name.text))
    count = found.item.topic.partitions
    names = [f"{name.text}-partition-{number}" for number in range(count)] or [name.text]
    places: list[Assignment] = []

    async def read(changes: AsyncIterator[Change[Assignment]]) -> None:
        async for change in changes:
            if change.kind is ChangeKind.PRESENT and change.value and change.value.broker_id:
                places.append(change.value)
            elif change.kind is ChangeKind.SNAPSHOT_COMPLETE and change.shard_id == found.shard_id:
                break  # All units of a topic are in one shard.

    async with (
        Client(nodes) as watcher,
        aclosing(watcher.watch_assignments(names=names)) as changes,
    ):
        try:
            async with timeout(PLACES_TIMEOUT_MS / 1000):
                await read(changes)
        except TimeoutError:
            why = f"the brokers of {name.text} were not read within {PLACES_TIMEOUT_MS} ms"
            raise DeadlineExceeded(why) from None
    return places


def _whole(topic: str) -> TopicName:
    """Return the name if it is a topic's: partitions have no rules of their own.

    Raises:
        InvalidName: It is malformed. Refused: It is a partition's.
    """
    name = parse_topic(topic)
    if name.partition is not None:
        why = f"{name.text} is a partition: pin {name.base_text}, all of it"
        raise Refused(RejectionCode.NOT_ALLOWED, why)
    return name


def _check_one_unit(name: TopicName, item: Any) -> None:
    """Check that ``name`` means one unit of the topic in ``item``.

    Raises:
        Refused: There is no such topic, or it has partitions of which none was named.
    """
    if item.WhichOneof("value") is None:
        raise Refused(RejectionCode.NOT_FOUND, f"there is no topic {name.base_text}")
    partitions = item.topic.partitions
    if partitions and name.partition is None:
        why = f"{name.text} has {partitions} partitions: name one, such as -partition-0"
        raise Refused(RejectionCode.PARTITIONED, why)
    if name.partition is not None and name.partition >= partitions:
        raise Refused(RejectionCode.NOT_FOUND, f"{name.base_text} has {partitions} partitions")
