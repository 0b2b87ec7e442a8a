"""``tenants``, ``namespaces`` and ``topics``: create, get, list, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import about, as_dict, print_json, print_line, print_table
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX, TOPICS_PER_CREATE_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.runtime.lifecycle.exit_code import ExitCode, print_error

if TYPE_CHECKING:
    from nextgen.cli.calls.discovery_client import DiscoveryClient

Name = Annotated[str, typer.Argument(help="Its name.")]
Names = Annotated[list[str], typer.Argument(help="Names; any accepted form.")]
Properties = Annotated[
    list[str] | None, typer.Option("--property", "-p", metavar="KEY=VALUE", help="Repeatable.")
]
Prefix = Annotated[
    str, typer.Option("--prefix", help="Only those whose local names begin with it.")
]
PageToken = Annotated[
    str, typer.Option("--page-token", help="Go on where a listing with --limit ended.")
]
Limit = Annotated[int, typer.Option("--limit", min=0, help="At most so many; 0: all.")]
Effective = Annotated[
    bool,
    typer.Option(
        "--effective/--committed",
        help="Return once every discovery node finds them, or as soon as they are durable.",
    ),
]

EFFECTIVE_TIMEOUT_MS = 30_000
"""An effective write waits for subscribers that are slow, at most for the end of their sessions."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The differences of the three inventories. ``noun`` is also the field of an ``Item``."""

    noun: str
    create: str
    get: str
    list: str
    delete: str
    parent: str = ""
    """The noun of what its objects are in, and the method that gets one."""
    get_parent: str = ""


TENANTS = Inventory("tenant", "CreateTenant", "GetTenant", "ListTenants", "DeleteTenant")
NAMESPACES = Inventory(
    *("namespace", "CreateNamespace", "GetNamespace", "ListNamespaces", "DeleteNamespace"),
    *("tenant", "GetTenant"),
)
TOPICS = Inventory(
    *("topic", "CreateTopics", "GetTopic", "ListTopics", "DeleteTopic"),
    *("namespace", "GetNamespace"),
)

tenants_group = typer.Typer(help="Create, get, list, rename and delete tenants.")
namespaces_group = typer.Typer(help="Create, get, list, rename and delete namespaces.")
topics_group = typer.Typer(
    help="Create, get, list, measure, place and delete topics.", no_args_is_help=True
)
"""The groups of commands; other modules add theirs."""


def register(app: typer.Typer) -> None:
    """Add the three groups."""
    tenants_group.command("create")(create_tenant)
    tenants_group.command("list")(list_tenants)
    _add_get(tenants_group, TENANTS)
    _add_delete(tenants_group, TENANTS)
    app.add_typer(tenants_group, name="tenants", no_args_is_help=True)

    namespaces_group.command("create")(create_namespace)
    namespaces_group.command("list")(list_namespaces)
    _add_get(namespaces_group, NAMESPACES)
    _add_delete(namespaces_group, NAMESPACES)
    app.add_typer(namespaces_group, name="namespaces", no_args_is_help=True)

    topics_group.command("create")(create_topics)
    topics_group.command("list")(list_topics)
    topics_group.command("count")(count_topics)
    topics_group.command("grow")(grow_topic)
    topics_group.command("stats")(topic_stats)
    _add_get(topics_group, TOPICS)
    topics_group.command("delete")(delete_topic)
    app.add_typer(topics_group, name="topics")


def parse_properties(pairs: Sequence[str] | None) -> dict[str, str]:
    """Return ``key=value`` texts as a map."""
    properties = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--property")
        properties[key] = value
    return properties


def create_tenant(
    name: Name,
    properties: Properties = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Create a tenant."""
    _create(TENANTS, name, properties, endpoints(target, data_dir), json_output)


def create_namespace(
    name: Annotated[str, typer.Argument(help="tenant/namespace")],
    properties: Properties = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Create a namespace in a tenant that exists."""
    _create(NAMESPACES, name, properties, endpoints(target, data_dir), json_output)


def create_topics(
    names: Names,
    partitions: Annotated[int, typer.Option("--partitions", min=0, help="0: not partitioned.")] = 0,
    properties: Properties = None,
    effective: Effective = True,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Create topics in namespaces that exist. Each is accepted or refused by itself."""
    each = f" with {partitions} partitions{' each' if len(names) > 1 else ''}" if partitions else ""
    spec = {"partitions": partitions, "properties": parse_properties(properties)}
    nodes = endpoints(target, data_dir)
    create_all(names, spec, each, nodes, effective=effective, json_output=json_output)


def create_all(
    names: Sequence[str],
    spec: Mapping[str, Any],
    with_what: str,
    nodes: Sequence[str],
    *,
    effective: bool,
    json_output: bool,
) -> None:
    """Create a topic of each name by one request, and show which were refused.

    ``spec`` has the other fields of their ``TopicSpec``; ``with_what`` describes it.
    """
    from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
    from protos.nextgen.v1.discovery_service_pb2 import CreateTopicsRequest
    from protos.nextgen.v1.shard_service_pb2 import (
        CONSISTENCY_ASYNC,
        CONSISTENCY_EFFECTIVE,
        TopicSpec,
    )

    if len(names) > TOPICS_PER_CREATE_MAX:
        raise typer.BadParameter(f"{len(names)} names, at most {TOPICS_PER_CREATE_MAX} at once")
    specs = [TopicSpec(name=name, **spec) for name in names]

    async def work() -> Any:
        async with DiscoveryClient(nodes, timeout_ms=EFFECTIVE_TIMEOUT_MS) as client:
            request = CreateTopicsRequest(
                command_id=new_command_id(),
                topics=specs,
                consistency=CONSISTENCY_EFFECTIVE if effective else CONSISTENCY_ASYNC,
            )
            return await client.call("CreateTopics", request)

    response = run_command(work())
    outcomes = list(zip(names, response.topics, strict=True))
    refused = [(name, outcome) for name, outcome in outcomes if outcome.rejection_code]
    created = len(names) - len(refused)
    if json_output:
        print_json({"topics": [{"name": n, **as_dict(outcome)} for n, outcome in outcomes]})
    elif created:
        which = parse_topic(names[0]).text if len(names) == 1 else f"{created:,} topics"
        print_line(f"created {which}{with_what}")
    for name, outcome in refused:
        print_error(f"{about(name, outcome.message)} ({outcome.rejection_code})")
    if refused:
        raise typer.Exit(ExitCode.REFUSED)


def grow_topic(
    name: Name,
    partitions: Annotated[int, typer.Argument(min=1, help="All that it is to have.")],
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give a partitioned topic more partitions. Their number never shrinks.

    Producers and consumers use the new ones once they ask for the number again: by default within
    a minute. Keys are spread over all partitions from then on.
    """
    from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
    from protos.nextgen.v1.discovery_service_pb2 import UpdatePartitionsRequest

    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            request = UpdatePartitionsRequest(
                command_id=new_command_id(), name=name, partitions=partitions
            )
            return await client.call("UpdatePartitions", request)

    response = run_command(work())
    if json_output:
        print_json({"name": name, "partitions": partitions, **as_dict(response)})
    else:
        print_line(f"{name} has {partitions} partitions")


def delete_topic(
    name: Name,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if it has producers, consumers or subscriptions."),
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Delete one topic with all its partitions.

    While it has producers, consumers or subscriptions it is deleted by force only: its clients are
    closed then, and what they were acknowledged is gone with the topic.
    """
    _delete(TOPICS, name, endpoints(target, data_dir), json_output, force=force)


def list_tenants(
    limit: Limit = 100,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """List tenants by name."""
    _list(TENANTS, "", limit, endpoints(target, data_dir), json_output)


def list_namespaces(
    tenant: Annotated[str, typer.Argument(help="Whose.")],
    limit: Limit = 100,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """List the namespaces of a tenant by name."""
    _list(NAMESPACES, tenant, limit, endpoints(target, data_dir), json_output)


def list_topics(
    namespace: Annotated[str, typer.Argument(help="tenant/namespace")],
    prefix: Prefix = "",
    limit: Limit = 100,
    page_token: PageToken = "",
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """List the topics of a namespace by name."""
    _list(
        TOPICS,
        namespace,
        limit,
        endpoints(target, data_dir),
        json_output,
        prefix=prefix,
        page_token=page_token,
    )


def count_topics(
    namespace: Annotated[str, typer.Argument(help="tenant/namespace")],
    prefix: Prefix = "",
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Count the topics of a namespace, exactly: reads all of their names."""
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from protos.nextgen.v1.discovery_service_pb2 import CountTopicsRequest

    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            request = CountTopicsRequest(parent=namespace, prefix=prefix)
            count = await client.call("CountTopics", request)
            if not count.topics:
                await _check_parent(client, TOPICS, namespace)
            return count

    count = run_command(work())
    if json_output:
        print_json({"namespace": namespace, "topics": count.topics, "units": count.units})
    else:
        print_table(namespace, ("topics", "units"), [(count.topics, count.units)])


def topic_stats(
    names: Names,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show what the brokers of topics know: clients, messages, subscriptions, backlog.

    A topic that no broker serves is assigned first. A partitioned topic is shown by partition.
    """
    from nextgen.cli.topics.stats import gather_topic_stats, print_topic_stats

    documents = run_command(gather_topic_stats(endpoints(target, data_dir), names))
    if json_output:
        print_json({"topics": documents})
    else:
        print_topic_stats(documents)
    failed = [one for one in documents if one.get("error")]
    for one in failed:
        print_error(about(one["topic"], one["error"]))
    if failed:
        is_refused = any("rejection_code" in one for one in failed)
        raise typer.Exit(ExitCode.REFUSED if is_refused else ExitCode.NO_ANSWER)


def endpoints(target: str | None, data_dir: Any) -> tuple[str, ...]:
    """Return the discovery nodes to call; without any the command ends with an error."""

    async def find() -> tuple[str, ...]:
        return endpoints_of(target, data_dir)

    return run_command(find())


def _add_get(group: typer.Typer, inventory: Inventory) -> None:
    def get(
        name: Name, target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False
    ) -> None:
        _get(inventory, name, endpoints(target, data_dir), json_output)

    group.command("get", help=f"Show one {inventory.noun}.")(get)


def _add_delete(group: typer.Typer, inventory: Inventory) -> None:
    def delete(
        name: Name, target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False
    ) -> None:
        _delete(inventory, name, endpoints(target, data_dir), json_output)

    group.command("delete", help=f"Delete one {inventory.noun}.")(delete)


def _create(
    inventory: Inventory,
    name: str,
    properties: Sequence[str] | None,
    nodes: tuple[str, ...],
    json_output: bool,
) -> None:
    from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
    from protos.nextgen.v1 import discovery_service_pb2

    request_type = getattr(discovery_service_pb2, f"{inventory.create}Request")
    request = request_type(
        command_id=new_command_id(), name=name, properties=parse_properties(properties)
    )

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            return await client.call(inventory.create, request)

    response = run_command(work())
    if json_output:
        print_json({"name": name, **as_dict(response)})
    else:
        print_line(f"created {inventory.noun} {name}")


def _get(inventory: Inventory, name: str, nodes: tuple[str, ...], json_output: bool) -> None:
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from protos.nextgen.v1.discovery_service_pb2 import GetObjectRequest

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            response = await client.call(inventory.get, GetObjectRequest(name=name))
        if response.item.WhichOneof("value") is None:
            raise Refused("NOT_FOUND", f"there is no {inventory.noun} {name!r}")
        return response

    response = run_command(work())
    shown = as_dict(getattr(response.item, inventory.noun))
    if json_output:
        print_json(shown | {"shard_id": response.shard_id, "position": response.position})
    else:
        rows = [(key, _short(value)) for key, value in shown.items()]
        print_table(name, ("field", "value"), rows)


def _list(
    inventory: Inventory,
    parent: str,
    limit: int,
    nodes: tuple[str, ...],
    json_output: bool,
    *,
    prefix: str = "",
    page_token: str = "",
) -> None:
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from protos.nextgen.v1.discovery_service_pb2 import ListObjectsRequest

    async def work() -> tuple[list[Any], str]:
        items: list[Any] = []
        request = ListObjectsRequest(parent=parent, prefix=prefix, page_token=page_token)
        async with DiscoveryClient(nodes) as client:
            while not limit or len(items) < limit:
                left = limit - len(items) if limit else PAGE_ITEMS_MAX
                request.page_size = min(PAGE_ITEMS_MAX, left)
                page = await client.call(inventory.list, request)
                items += [getattr(item, inventory.noun) for item in page.items]
                request.page_token = page.next_page_token
                if not request.page_token:
                    break
            if not items:
                await _check_parent(client, inventory, parent)
        return items, request.page_token

    items, token = run_command(work())
    if json_output:
        shown = {f"{inventory.noun}s": [as_dict(item) for item in items], "more": bool(token)}
        print_json(shown | ({"next_page_token": token} if token else {}))
        return
    rows = [(item.name, item.version, _short(dict(item.properties))) for item in items]
    print_table(f"{inventory.noun}s {parent}".rstrip(), ("name", "version", "properties"), rows)
    if token:
        print_error(f"there are more than {limit}: use --limit")


async def _check_parent(client: DiscoveryClient, inventory: Inventory, parent: str) -> None:
    """Check that the tenant or namespace of a listing without objects exists.

    Raises:
        Refused: It does not.
    """
    from protos.nextgen.v1.discovery_service_pb2 import GetObjectRequest

    if not inventory.parent:
        return
    found = await client.call(inventory.get_parent, GetObjectRequest(name=parent))
    if found.item.WhichOneof("value") is None:
        raise Refused(RejectionCode.NOT_FOUND, f"there is no {inventory.parent} {parent!r}")


def _delete(
    inventory: Inventory,
    name: str,
    nodes: tuple[str, ...],
    json_output: bool,
    *,
    force: bool = False,
) -> None:
    from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
    from protos.nextgen.v1.discovery_service_pb2 import DeleteRequest

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            request = DeleteRequest(command_id=new_command_id(), name=name, force=force)
            return await client.call(inventory.delete, request)

    response = run_command(work())
    if json_output:
        print_json({"name": name, **as_dict(response)})
    else:
        print_line(f"deleted {inventory.noun} {name}")


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={text}" for key, text in value.items())
    return str(value)
