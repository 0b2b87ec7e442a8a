"""``permissions``: which roles administer tenants, and may produce and consume where."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.cli.topics.inventory_commands import EFFECTIVE_TIMEOUT_MS, endpoints
from nextgen.cli.topics.policy_commands import Holder
from nextgen.kernel.governance.permissions import AuthAction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nextgen.client.client import Client

Answer = TypeVar("Answer")
Role = Annotated[str, typer.Argument(metavar="ROLE", help="The role, as clients prove it.")]
Subscription = Annotated[
    str | None,
    typer.Option("--subscription", "-s", help="The use of this subscription in a namespace."),
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    permissions = typer.Typer(
        help="Say which roles may do what: with tenants, namespaces, topics and subscriptions.",
        no_args_is_help=True,
    )
    permissions.command("grant")(grant)
    permissions.command("revoke")(revoke)
    permissions.command("show")(show)
    app.add_typer(permissions, name="permissions")


def grant(
    name: Holder,
    role: Role,
    actions: Annotated[
        list[AuthAction] | None,
        typer.Argument(metavar="ACTION", help="All that it may do with a namespace or a topic."),
    ] = None,
    subscription: Subscription = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Permit a role these actions, and no others, with a namespace or a topic. Without actions,
    make it an admin of a tenant; with --subscription, one of the only roles that may use it.

    It returns once the permission is effective. A topic's permissions add to its namespace's.
    """
    nodes = endpoints(target, data_dir)
    chosen = list(dict.fromkeys(actions or ()))
    if subscription is not None or "/" not in name:
        if chosen:
            raise typer.BadParameter("actions are for a namespace or a topic as a whole")
    elif not chosen:
        raise typer.BadParameter(f"name what it may do: {', '.join(AuthAction)}")

    def call(client: Client) -> Awaitable[Any]:
        if subscription is not None:
            return client.grant_subscription(name, subscription, role)
        if "/" not in name:
            return client.grant_admin(name, role)
        return client.grant(name, role, chosen)

    written = _run(nodes, call)
    if json_output:
        print_json({"name": name, "role": role, "version": written.version})
    elif subscription is not None:
        print_line(f"{role} may use subscription {subscription} in {name}, others only if named")
    elif "/" not in name:
        print_line(f"{role} is an admin of {name}")
    else:
        print_line(f"{role} may {', '.join(chosen)} with {name}")


def revoke(
    name: Holder,
    role: Role,
    subscription: Subscription = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Take back what a role is permitted by a tenant, a namespace, a topic or a subscription.

    It returns once the revocation is effective: then connections that rested on it are closed. What
    a topic's namespace permits stays. A subscription without any role may be used by all.
    """
    nodes = endpoints(target, data_dir)

    def call(client: Client) -> Awaitable[Any]:
        if subscription is not None:
            return client.revoke_subscription(name, subscription, role)
        return client.revoke_admin(name, role) if "/" not in name else client.revoke(name, role)

    written = _run(nodes, call)
    if json_output:
        print_json({"name": name, "role": role, "version": written.version})
    else:
        what = f"subscription {subscription} of {name}" if subscription is not None else name
        print_line(f"{role} is permitted nothing by {what}")


def show(
    name: Holder,
    merged: Annotated[
        bool, typer.Option("--merged", help="Of a topic: with what its namespace permits.")
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show the admins of a tenant, or what a namespace or a topic permits."""
    from nextgen.kernel.errors import Refused
    from nextgen.kernel.events.decider import RejectionCode
    from nextgen.kernel.governance.permissions import admin_roles_in

    nodes = endpoints(target, data_dir)
    rows: list[tuple[str, str, str]] = []

    async def work(client: Client) -> dict[str, Any]:
        if "/" not in name:
            found = await client.get_tenant(name)
            if found is None:
                raise Refused(RejectionCode.NOT_FOUND, f"tenant {name} does not exist")
            admins = admin_roles_in(found.properties)
            rows.extend((role, "admin", "") for role in admins)
            return {"admins": list(admins)}
        policies = (await client.get_policies(name, merged=merged)).policies
        held, subscriptions = policies.permissions, policies.subscription_permissions
        rows.extend((each.role, ", ".join(each.actions), "") for each in held)
        rows.extend(
            (role, "use", each.subscription) for each in subscriptions for role in each.roles
        )
        mode = policies.subscription_auth_mode
        return {
            "permissions": {each.role: list(each.actions) for each in held},
            "subscriptions": {each.subscription: list(each.roles) for each in subscriptions},
            "subscription_auth_mode": mode.value if mode is not None else "",
        }

    found = _run(nodes, work)
    if json_output:
        print_json({"name": name, **found})
        return
    mode = found.get("subscription_auth_mode")
    title = f"{name}{f', subscriptions by {mode}' if mode else ''}"
    print_table(title, ("role", "may", "subscription"), rows)


def _run(nodes: Sequence[str], call: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Return the answer to a call, whose changes are effective then."""
    from nextgen.client.client import Client

    async def work() -> Answer:
        async with Client(nodes, timeout_ms=EFFECTIVE_TIMEOUT_MS, effective=True) as client:
            return await call(client)

    return run_command(work())
