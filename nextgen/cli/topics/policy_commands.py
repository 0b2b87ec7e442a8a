"""``policies``: policies of tenants, namespaces and topics, from retention to placement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target
from nextgen.cli.console.output import as_dict, print_json, print_line, print_table
from nextgen.cli.topics.inventory_commands import EFFECTIVE_TIMEOUT_MS, endpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from protos.nextgen.v1.policies_pb2 import Policies


Holder = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="tenant, tenant/namespace, or a topic with its tenant and namespace."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    policies = typer.Typer(
        help="Get and set the policies of tenants, namespaces and topics.", no_args_is_help=True
    )
    policies.command("get")(get_policies)
    policies.command("set")(set_policies)
    app.add_typer(policies, name="policies")


def get_policies(
    name: Holder,
    merged: Annotated[
        bool, typer.Option("--merged", help="With what the objects above it say.")
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show an object's own policies, or with --merged its effective ones."""
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.topics.policy_fields import explicit_fields
    from protos.nextgen.v1.discovery_service_pb2 import GetPoliciesRequest

    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            request = GetPoliciesRequest(name=name, merged=merged)
            return await client.call("GetPolicies", request)

    response = run_command(work())
    if json_output:
        print_json({"name": name, **as_dict(response)})
        return
    shown = response.merged if merged else response.policies
    title = f"{name}, version {response.version}{', merged' if merged else ''}"
    print_table(title, ("field", "value"), explicit_fields(shown))


def set_policies(
    name: Holder,
    fields: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIELD=VALUE", help="Fields to set; lists with commas."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="FIELD", help="Remove this field from the level. Repeatable."
        ),
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Begin from nothing: the fields given are all.")
    ] = False,
    expected_version: Annotated[
        int, typer.Option("--expect-version", min=0, help="Only if they are at it; 0: any.")
    ] = 0,
    effective: Annotated[
        bool, typer.Option("--effective", help="Return once every broker concerned has them.")
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Change fields of an object's policies; what is not named stays as it is."""
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from nextgen.cli.topics.policy_fields import set_field, unset_field
    from protos.nextgen.v1.policies_pb2 import Policies

    if not (fields or unset or clear):
        raise typer.BadParameter("nothing to set: give FIELD=VALUE, --unset or --clear")
    nodes = endpoints(target, data_dir)

    def alter(policies: Policies) -> None:
        if clear:
            policies.Clear()
        for path in unset or ():
            unset_field(policies, path)
        for assignment in fields or ():
            set_field(policies, assignment)

    async def work() -> Any:
        alter(Policies())  # Invalid fields are refused before any request.
        async with DiscoveryClient(nodes, timeout_ms=EFFECTIVE_TIMEOUT_MS) as client:
            return await alter_policies(
                client, name, alter, expected_version=expected_version, effective=effective
            )

    response = run_command(work())
    if json_output:
        print_json({"name": name, **as_dict(response)})
    else:
        print_line(f"policies of {name} changed, version {response.version}")


async def alter_policies(
    client: DiscoveryClient,
    name: str,
    alter: Callable[[Policies], None],
    *,
    expected_version: int = 0,
    effective: bool = False,
) -> Any:
    """Read an object's policies, alter them, and write them unless they changed meanwhile.

    Raises:
        Refused: VERSION_MISMATCH: they changed meanwhile, or are not at ``expected_version``; or
            the altered policies are invalid.
    """
    from nextgen.cli.calls.discovery_client import new_command_id
    from protos.nextgen.v1.discovery_service_pb2 import GetPoliciesRequest, SetPoliciesRequest
    from protos.nextgen.v1.shard_service_pb2 import CONSISTENCY_ASYNC, CONSISTENCY_EFFECTIVE

    present = await client.call("GetPolicies", GetPoliciesRequest(name=name))
    policies = present.policies
    alter(policies)
    version = expected_version or present.version
    request = SetPoliciesRequest(
        command_id=new_command_id(),
        name=name,
        policies=policies,
        expected_version=version,
        expects_none=not version,
        consistency=CONSISTENCY_EFFECTIVE if effective else CONSISTENCY_ASYNC,
    )
    return await client.call("SetPolicies", request)
