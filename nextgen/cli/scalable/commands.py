"""``scalable-topics``: create, get, stats, list and delete. ``change_commands`` has the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, Wide
from nextgen.cli.console.output import (
    about,
    as_dict,
    print_json,
    print_line,
    print_table,
    takes_unicode,
    terminal_columns,
)
from nextgen.cli.scalable import change_commands
from nextgen.cli.scalable.names import Name, Names, full_name, layout_of
from nextgen.cli.topics.inventory_commands import (
    Effective,
    Limit,
    Prefix,
    Properties,
    create_all,
    endpoints,
    parse_properties,
)
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.scalable import SEGMENTS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import Domain, parse_topic
from nextgen.kernel.routing.property_filter import InvalidFilter, parse_filter
from nextgen.runtime.lifecycle.exit_code import ExitCode, print_error

Epochs = Annotated[
    int, typer.Option("--epochs", min=0, help="Draw so many epochs, the last ones; 0: all.")
]

EPOCHS_DRAWN = 20


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="Create, draw, measure, split, merge and delete scalable topics.",
        no_args_is_help=True,
    )
    group.command("create")(create)
    group.command("list")(list_topics)
    group.command("get")(get)
    group.command("stats")(stats)
    group.command("why")(why)
    group.command("delete")(delete)
    change_commands.add_to(group)
    app.add_typer(group, name="scalable-topics")


def create(
    names: Names,
    segments: Annotated[
        int,
        typer.Option(
            "--segments", min=1, max=SEGMENTS_PER_TOPIC_MAX, help="Each begins with so many."
        ),
    ] = 1,
    properties: Properties = None,
    effective: Effective = True,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Create scalable topics in namespaces that exist. Each is accepted or refused by itself."""
    each = f" with {_counted(segments)}{' each' if len(names) > 1 else ''}"
    spec = {"segments": segments, "properties": parse_properties(properties)}
    full = [full_name(name) for name in names]
    nodes = endpoints(target, data_dir)
    create_all(full, spec, each, nodes, effective=effective, json_output=json_output)


def list_topics(
    namespace: Annotated[str, typer.Argument(help="tenant/namespace")],
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="KEY=VALUE", help="Those with all of these."),
    ] = None,
    prefix: Prefix = "",
    limit: Limit = 100,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """List the scalable topics of a namespace by name."""
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from protos.nextgen.v1.discovery_service_pb2 import GetObjectRequest, ListObjectsRequest

    try:
        wanted = parse_filter(properties or ())
    except InvalidFilter as error:
        raise typer.BadParameter(str(error), param_hint="--property") from error
    nodes = endpoints(target, data_dir)

    async def work() -> list[Any]:
        found: list[Any] = []
        request = ListObjectsRequest(
            parent=namespace, prefix=prefix, domain=Domain.TOPIC.value, page_size=PAGE_ITEMS_MAX
        )
        async with DiscoveryClient(nodes) as client:
            while True:
                page = await client.call("ListTopics", request)
                topics = (item.topic for item in page.items)
                found += [each for each in topics if wanted.matches(each.properties)]
                request.page_token = page.next_page_token
                # One more than the limit shows whether there are more.
                if not request.page_token or (limit and len(found) > limit):
                    break
            if not found:
                parent = await client.call("GetNamespace", GetObjectRequest(name=namespace))
                if not parent.item.HasField("namespace"):
                    raise Refused(RejectionCode.NOT_FOUND, f"there is no namespace {namespace!r}")
        return found

    found = run_command(work())
    shown = found[:limit] if limit else found
    if json_output:
        print_json({"topics": [as_dict(each) for each in shown], "more": len(found) > len(shown)})
        return
    rows = [(each.name, each.version, _pairs(each.properties)) for each in shown]
    print_table(f"scalable topics {namespace}", ("name", "version", "properties"), rows)
    if len(found) > len(shown):
        print_error(f"there are more than {limit}: use --limit")


def get(
    name: Name,
    epochs: Epochs = EPOCHS_DRAWN,
    wide: Wide = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Draw the layout of a scalable topic, and list its segments and subscriptions.

    A row is an epoch of the layout, with the segments that were active from then on; heavy lines
    are those that it made. The last row has those that are active now.
    """
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.scalable.layout_page import print_layout
    from protos.nextgen.v1.discovery_service_pb2 import GetObjectRequest

    full = full_name(name)
    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            layout = await layout_of(client, full)
            topic = await client.call("GetTopic", GetObjectRequest(name=full))
            return layout, dict(topic.item.topic.properties)

    layout, properties = run_command(work())
    if json_output:
        print_json(as_dict(layout) | {"properties": properties})
        return
    columns = None if wide else terminal_columns()
    print_layout(layout, properties, columns=columns, epochs_max=epochs, has_signs=takes_unicode())


def stats(
    name: Name,
    wide: Wide = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show what the brokers of the segments know: clients, messages, subscriptions, backlog.

    A segment that no broker serves is assigned first.
    """
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.scalable.segment_stats import print_segment_stats, segment_documents
    from nextgen.cli.topics.stats import gather_topic_stats

    full = full_name(name)
    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            layout = await layout_of(client, full)
        return layout, await segment_documents(layout, lambda n: gather_topic_stats(nodes, n))

    layout, documents = run_command(work())
    if json_output:
        print_json({"name": full, "epoch": layout.epoch, "segments": documents})
    else:
        print_segment_stats(layout, documents, wide=wide)
    failed = [one for one in documents if one.get("error")]
    for one in failed:
        print_error(about(one["topic"], one["error"]))
    if failed:
        is_refused = any("rejection_code" in one for one in failed)
        raise typer.Exit(ExitCode.REFUSED if is_refused else ExitCode.NO_ANSWER)


def why(
    name: Name,
    limit: Annotated[int, typer.Option("--last", min=0, help="So many actions; 0: all.")] = 10,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show why a topic was split or merged by itself: the rule, the numbers, the policy.

    All of it is read from the logs of the shards that had the topic, as far as these go back.
    """
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.calls.shard_history import read_history
    from nextgen.cli.scalable.scale_history import EVENTS, actions_of, lines
    from nextgen.kernel.routing.hashing import slot_of
    from nextgen.kernel.routing.slots import SlotTable
    from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

    full = full_name(name)
    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            await layout_of(client, full)
            cluster = await client.call("GetCluster", GetClusterRequest())
        shard_map = cluster.shard_map
        table = SlotTable.from_bytes(shard_map.version, shard_map.slot_owners)
        events = await read_history(
            nodes, table, slot_of(parse_topic(full).routing_key), EVENTS, full
        )
        return [event for event in events if not event.HasField("slots_adopted")]

    actions = actions_of(full, run_command(work()))[-limit:]
    if json_output:
        print_json({"name": full, "actions": [asdict(each) for each in actions]})
        return
    for action in actions:
        for line in lines(action):
            print_line(line)
    if not actions:
        print_line(f"{full} was never changed by itself, as far as the log goes back")


def delete(
    name: Name,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if it has producers, consumers or subscriptions."),
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Delete a scalable topic with all its segments.

    While it has producers, consumers or subscriptions it is deleted by force only: its clients are
    closed then, and what they were acknowledged is gone with the topic.
    """
    from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
    from protos.nextgen.v1.discovery_service_pb2 import DeleteRequest

    full = full_name(name)
    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            request = DeleteRequest(command_id=new_command_id(), name=full, force=force)
            return await client.call("DeleteTopic", request)

    response = run_command(work())
    if json_output:
        print_json({"name": full, **as_dict(response)})
    else:
        print_line(f"deleted {full}")


def _counted(segments: int) -> str:
    return f"{segments:,} segment{'' if segments == 1 else 's'}"


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(properties.items()))
