"""``scalable-topics`` split, merge, rebucket, migrate, and what is done to subscriptions.

A command is answered when its change is done. What an interrupted one began goes on; the same
command joins it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target
from nextgen.cli.console.output import as_dict, print_json, print_line
from nextgen.cli.scalable.names import Name, full_name, layout_of, migrated_name
from nextgen.cli.topics.inventory_commands import endpoints
from nextgen.kernel.limits.scalable import BUCKETS_PER_SEGMENT_MAX
from nextgen.kernel.limits.stream import POSITION_MAX

Segment = Annotated[int, typer.Argument(min=0, max=POSITION_MAX, help="The id of a segment.")]
Subscription = Annotated[
    str, typer.Option("--subscription", "-s", help="Its name.", show_default=False)
]

_TYPES = ("stream", "queue", "checkpoint")


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group of scalable topics."""
    group.command("split")(split)
    group.command("merge")(merge)
    group.command("rebucket")(rebucket)
    group.command("migrate")(migrate)
    group.command("subscribe")(subscribe)
    group.command("unsubscribe")(unsubscribe)
    group.command("seek")(seek)
    group.command("clear-backlog")(clear_backlog)


def split(
    name: Name,
    segment: Segment,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Split an active segment into two, each with half of its range."""
    _change(name, "split", [segment], target, data_dir, json_output)


def merge(
    name: Name,
    segment: Segment,
    other: Segment,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Merge two active segments of adjacent ranges into one."""
    _change(name, "merge", [segment, other], target, data_dir, json_output)


def rebucket(
    name: Name,
    segment: Segment,
    buckets: Annotated[
        int,
        typer.Option(
            "--buckets", min=1, max=BUCKETS_PER_SEGMENT_MAX, help="How many.", show_default=False
        ),
    ],
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Replace an active segment by one of its range with another number of entry buckets.

    So many consumers of a stream can share it.
    """
    _change(name, "rebucket", [segment], target, data_dir, json_output, buckets=buckets)


def migrate(
    name: Annotated[
        str, typer.Argument(help="persistent://tenant/namespace/name or tenant/namespace/name")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Also while classic clients are connected.")
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Replace a classic topic by a scalable one, with its messages and subscriptions, for good.

    Classic producers fail from then on; classic consumers can read what is left.
    """
    full = migrated_name(name)
    _change(full, "migrate", [], target, data_dir, json_output, force=force)


def subscribe(
    name: Name,
    subscription: Subscription,
    type_: Annotated[str, typer.Option("--type", help="stream, queue or checkpoint")] = "stream",
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Create a subscription at the beginning of all active segments; one that exists stays."""
    if type_ not in _TYPES:
        raise typer.BadParameter(f"{type_!r} is none of {', '.join(_TYPES)}", param_hint="--type")
    done = f"subscription {subscription} exists"
    _write(name, "CreateScalableSubscription", subscription, done, target, data_dir, json_output,
           type=type_)  # fmt: skip


def unsubscribe(
    name: Name,
    subscription: Subscription,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Delete a subscription from all segments; registered consumers of it are none any more."""
    done = f"deleted subscription {subscription}"
    _write(name, "DeleteScalableSubscription", subscription, done, target, data_dir, json_output)


def seek(
    name: Name,
    subscription: Subscription,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="A publish time: Unix milliseconds, or as 2026-11-28T14:00:00+00:00.",
            show_default=False,
        ),
    ],
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Set a subscription to the first messages of a publish time, in all segments."""
    time_ms = publish_time_ms(to)
    done = f"subscription {subscription} is at {to}"
    _write(name, "SeekScalableSubscription", subscription, done, target, data_dir, json_output,
           seek_to_ms=time_ms)  # fmt: skip


def clear_backlog(
    name: Name,
    subscription: Subscription,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Set a subscription to the end of all segments."""
    done = f"subscription {subscription} is at the end"
    _write(name, "SeekScalableSubscription", subscription, done, target, data_dir, json_output,
           skips_all=True)  # fmt: skip


def publish_time_ms(text: str) -> int:
    """Return the Unix milliseconds of a publish time."""
    if text.isascii() and text.isdecimal() and int(text) <= POSITION_MAX:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or time.timestamp() < 0:
        reason = "is neither Unix milliseconds nor a time with its offset from UTC"
        raise typer.BadParameter(f"{text[:80]!r} {reason}", param_hint="--to")
    return int(time.timestamp() * 1_000)


def _change(
    name: str,
    kind: str,
    segments: list[int],
    target: str | None,
    data_dir: Any,
    json_output: bool,
    *,
    buckets: int = 0,
    force: bool = False,
) -> None:
    from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
    from protos.nextgen.v1.discovery_service_pb2 import UpdateLayoutRequest

    full = full_name(name)
    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            request = UpdateLayoutRequest(
                command_id=new_command_id(),
                name=full,
                kind=kind,
                segments=segments,
                buckets=buckets,
                force=force,
            )
            response = await client.call("UpdateLayout", request)
            return response, await layout_of(client, full)

    response, layout = run_command(work())
    sealed = [each.segment_id for each in layout.segments if each.legacy_topic_name]
    parents = set(segments or sealed)
    children = [each for each in layout.segments if each.parents and parents <= set(each.parents)]
    ids = [each.segment_id for each in children]
    if json_output:
        shown = {"name": full, "epoch": layout.epoch, "children": ids}
        print_json(shown | {"shard_id": response.shard_id, "position": response.position})
        return
    made = ", ".join(
        f"{each.segment_id} ({each.hash_start:04x}-{each.hash_end:04x})" for each in children
    )
    shown_parents = ", ".join(map(str, sorted(parents)))
    print_line(f"{kind} of {shown_parents} into {made or 'others'}: epoch {layout.epoch} of {full}")


def _write(
    name: str,
    method: str,
    subscription: str,
    done: str,
    target: str | None,
    data_dir: Any,
    json_output: bool,
    **fields: Any,
) -> None:
    from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
    from protos.nextgen.v1.discovery_service_pb2 import ScalableSubscriptionRequest

    full = full_name(name)
    nodes = endpoints(target, data_dir)

    async def work() -> Any:
        async with DiscoveryClient(nodes) as client:
            request = ScalableSubscriptionRequest(
                command_id=new_command_id(), name=full, subscription=subscription, **fields
            )
            return await client.call(method, request)

    response = run_command(work())
    if json_output:
        print_json({"name": full, "subscription": subscription, **as_dict(response)})
    else:
        print_line(f"{done}: {full}")
