"""``namespaces rename`` and ``tenants rename``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target
from nextgen.cli.console.output import plain_console, print_json, print_line
from nextgen.cli.topics.inventory_commands import endpoints, namespaces_group, tenants_group
from nextgen.cli.topics.rename_command import Grace, parse_grace
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.input.printable import printable

if TYPE_CHECKING:
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.client.discovery.write_requests import OnProgress, RenameProgress

_COUNTS_AT_ONCE = 16
"""Namespaces whose topics are counted at a time."""


def register(_app: typer.Typer) -> None:
    """Add the commands to their groups."""
    namespaces_group.command("rename")(rename_namespace)
    tenants_group.command("rename")(rename_tenant)


def rename_namespace(
    name: Annotated[str, typer.Argument(metavar="OLD", help="tenant/namespace")],
    new_name: Annotated[
        str, typer.Argument(metavar="NEW", help="tenant/namespace, in any tenant that exists.")
    ],
    grace: Grace = "1h",
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give a namespace another name: its topics are renamed one by one, and keep what they have.

    Nothing is renamed if one of them keeps its name. If the command is broken off, each topic has
    one of its names: repeat the command to go on. At the end the old namespace is deleted.
    """
    _rename("namespace", "RenameNamespace", name, new_name, grace, target, data_dir, json_output)


def rename_tenant(
    name: Annotated[str, typer.Argument(metavar="OLD", help="The tenant's present name.")],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new one.")],
    grace: Grace = "1h",
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give a tenant another name, namespace by namespace: see ``namespaces rename``."""
    _rename("tenant", "RenameTenant", name, new_name, grace, target, data_dir, json_output)


def _rename(
    noun: str,
    method: str,
    name: str,
    new_name: str,
    grace: str,
    target: str | None,
    data_dir: Any,
    json_output: bool,
) -> None:
    grace_ms = parse_grace(grace)
    nodes = endpoints(target, data_dir)

    async def work() -> RenameProgress:
        from nextgen.cli.calls.discovery_client import DiscoveryClient
        from nextgen.client.discovery.write_requests import rename_in_turns
        from protos.nextgen.v1.discovery_service_pb2 import (
            RenameParentRequest,
            RenameParentResponse,
        )

        async with DiscoveryClient(nodes) as client:

            async def turn_of(request: RenameParentRequest) -> RenameParentResponse:
                answer: RenameParentResponse = await client.call(method, request)
                return answer

            request = RenameParentRequest(name=name, new_name=new_name, grace_ms=grace_ms)
            if json_output:
                return await rename_in_turns(turn_of, request, lambda _: None)
            topics = await _count_topics(client, noun, name)
            with _shown_progress(topics) as on_progress:
                return await rename_in_turns(turn_of, request, on_progress)

    done = run_command(work())
    if json_output:
        shown = {"name": name, "new_name": new_name, "grace_ms": grace_ms}
        print_json(shown | {"renamed": done.renamed, "checked": done.checked})
    else:
        leads = f"for {grace} their former names lead to them too" if grace_ms else ""
        print_line(
            f"renamed {noun} {name} to {new_name} with {done.renamed:,} topics"
            + (f"; {leads}" if leads and done.renamed else "")
        )


async def _count_topics(client: DiscoveryClient, noun: str, name: str) -> int:
    """Return how many topics have the old name, 0 if they cannot be counted: then the rename says
    why, or does without."""
    from protos.nextgen.v1.discovery_service_pb2 import CountTopicsRequest

    topics = 0
    try:
        namespaces = [name] if noun == "namespace" else await _namespaces_of(client, name)
        for first in range(0, len(namespaces), _COUNTS_AT_ONCE):
            counted = await asyncio.gather(
                *(
                    client.call("CountTopics", CountTopicsRequest(parent=namespace))
                    for namespace in namespaces[first : first + _COUNTS_AT_ONCE]
                )
            )
            topics += sum(each.topics for each in counted)
    except MetadataError:
        return 0
    return topics


async def _namespaces_of(client: DiscoveryClient, tenant: str) -> list[str]:
    from protos.nextgen.v1.discovery_service_pb2 import ListObjectsRequest

    request = ListObjectsRequest(parent=tenant)
    namespaces: list[str] = []
    while True:
        page = await client.call("ListNamespaces", request)
        namespaces += [item.namespace.name for item in page.items]
        request.page_token = page.next_page_token
        if not request.page_token:
            return namespaces


@contextmanager
def _shown_progress(topics: int) -> Iterator[OnProgress]:
    """Yield a function that shows progress as one line on a terminal's stderr: how much of
    ``topics`` is done, 0 if their number is not known."""
    with plain_console(stderr=True).status("") as status:

        def show(progress: RenameProgress) -> None:
            status.update(progress_text(progress, topics))

        yield show


def progress_text(progress: RenameProgress, topics: int) -> str:
    """Return one line: how many of ``topics`` are checked and renamed. More may have come since
    they were counted; 0: they were not."""

    def part(done: int) -> str:
        return f"{done:,} of {max(topics, done):,}" if topics else f"{done:,}"

    counts = f"{part(progress.checked)} topics checked, {part(progress.renamed)} renamed"
    return f"{printable(progress.namespace)}: {counts}"
