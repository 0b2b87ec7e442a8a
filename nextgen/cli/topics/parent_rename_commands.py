"""``namespaces rename`` and ``tenants rename``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target
from nextgen.cli.console.output import plain_console, print_json, print_line
from nextgen.cli.topics.inventory_commands import endpoints, namespaces_group, tenants_group
from nextgen.cli.topics.rename_command import Grace, parse_grace
from nextgen.kernel.input.printable import printable

if TYPE_CHECKING:
    from nextgen.client.discovery.write_requests import OnProgress, RenameProgress


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
            with _shown_progress(is_shown=not json_output) as on_progress:
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


@contextmanager
def _shown_progress(*, is_shown: bool) -> Iterator[OnProgress]:
    """Yield a function that shows progress as one line on a terminal's stderr, or does nothing."""
    if not is_shown:
        yield lambda _: None
        return
    with plain_console(stderr=True).status("") as status:

        def show(progress: RenameProgress) -> None:
            counts = f"{progress.checked:,} topics checked, {progress.renamed:,} renamed"
            status.update(f"{printable(progress.namespace)}: {counts}")

        yield show
