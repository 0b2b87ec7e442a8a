"""``topics rename``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target
from nextgen.cli.console.output import as_dict, print_json, print_line
from nextgen.cli.topics.inventory_commands import (
    EFFECTIVE_TIMEOUT_MS,
    Effective,
    endpoints,
    topics_group,
)

_NO_GRACE = "0"

Grace = Annotated[
    str,
    typer.Option(
        "--grace",
        help="For so long former names of topics lead to them too: 30s, 10m, 1h, 7d at most; "
        "0: not.",
    ),
]


def register(_app: typer.Typer) -> None:
    """Add the command to the group of topics."""
    topics_group.command("rename")(rename_topic)


def rename_topic(
    name: Annotated[str, typer.Argument(metavar="OLD", help="The topic's present name.")],
    new_name: Annotated[
        str,
        typer.Argument(
            metavar="NEW",
            help="Its new one; without tenant and namespace: in the namespace that it is in.",
        ),
    ],
    grace: Grace = "1h",
    effective: Effective = True,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give a topic another name, in any namespace; what it has stays with it.

    Messages, subscriptions, schemas and policies stay, and its id. Clients of the topic are sent to
    look it up again, by the name that they know. A minute after the grace OLD is free.
    """
    grace_ms = parse_grace(grace)
    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
        from protos.nextgen.v1.discovery_service_pb2 import RenameTopicRequest
        from protos.nextgen.v1.shard_service_pb2 import CONSISTENCY_ASYNC, CONSISTENCY_EFFECTIVE

        async with DiscoveryClient(nodes, timeout_ms=EFFECTIVE_TIMEOUT_MS) as client:
            request = RenameTopicRequest(
                command_id=new_command_id(),
                name=name,
                new_name=new_name,
                grace_ms=grace_ms,
                consistency=CONSISTENCY_EFFECTIVE if effective else CONSISTENCY_ASYNC,
            )
            return await client.call("RenameTopic", request)

    response = run_command(work())
    if json_output:
        print_json({"name": name, "new_name": new_name, "grace_ms": grace_ms, **as_dict(response)})
    else:
        leads = f"for {grace} {name} leads to it too" if grace_ms else f"{name} leads nowhere"
        print_line(f"renamed {name} to {new_name}; {leads}")


def parse_grace(text: str) -> int:
    """Return the milliseconds in a duration as ``--grace`` has it.

    Raises:
        typer.BadParameter: It is none.
    """
    from nextgen.runtime.security.authentication.token_maker import duration_s

    if text == _NO_GRACE:
        return 0
    try:
        return duration_s(text) * 1_000
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--grace") from error
