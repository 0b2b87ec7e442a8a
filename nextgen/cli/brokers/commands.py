"""``brokers``: brokers with their capacity and load. ``leases``: the capacity ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from nextgen.cli.brokers import capacity_command, drain_command
from nextgen.cli.brokers.settings_commands import settings_group
from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, Wide, endpoints_of
from nextgen.cli.console.output import as_dict, print_json, print_table

_MIB = 1024 * 1024
_UNKNOWN = ""


def register(app: typer.Typer) -> None:
    """Add the group and the command ``leases``."""
    group = typer.Typer(help="Brokers: sessions, capacity, load.", no_args_is_help=True)
    group.command("list")(list_brokers)
    group.command("show")(show_broker)
    group.command("drain")(drain_command.drain)
    group.command("set-capacity")(capacity_command.set_capacity)
    group.add_typer(settings_group(), name="settings")
    app.add_typer(group, name="brokers")
    app.command("leases")(leases)


def list_brokers(
    wide: Wide = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show every broker: whether it is given units, how full it is, what it carries.

    Used units are the shards' last reports. Load is a minute old at most; it is empty after the
    cluster manager has changed its leader.
    """

    async def work() -> None:
        from nextgen.cli.brokers.capacity_state import gather_brokers

        brokers = await gather_brokers(endpoints_of(target, data_dir))
        if json_output:
            print_json({"brokers": brokers})
        else:
            _print_brokers(brokers, wide=wide)

    run_command(work())


def show_broker(
    broker: Annotated[str, typer.Argument(help="Broker id.")],
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show one broker: its session, its capacity, its load and its busiest topics."""

    async def work() -> None:
        from nextgen.cli.brokers.capacity_state import gather_brokers

        (found,) = await gather_brokers(endpoints_of(target, data_dir), broker)
        if json_output:
            print_json(found)
        else:
            _print_broker(found)

    run_command(work())


def leases(target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False) -> None:
    """Show the capacity ledger: what each broker has, and which shard may assign how much of it.

    A lease grows as it is used, and what was not needed for minutes is returned.
    """

    async def work() -> None:
        from nextgen.cli.brokers.capacity_state import gather_leases

        ledger = await gather_leases(endpoints_of(target, data_dir))
        if json_output:
            print_json(as_dict(ledger))
            return
        rows = [
            (
                account.broker_id,
                account.capacity_units,
                account.granted_units,
                lease.shard_id,
                lease.units,
                lease.units_used,
                lease.version,
                _time(lease.expires_at_ms),
            )
            for account in ledger.accounts
            if account.is_live
            for lease in account.leases
        ]
        print_table(
            "leases of live sessions, in units",
            ("broker", "capacity", "granted", "shard", "leased", "used", "version", "until (UTC)"),
            rows,
            extra=("capacity", "granted", "version"),
        )

    run_command(work())


def _print_brokers(brokers: list[dict[str, Any]], *, wide: bool = False) -> None:
    print_table(
        "brokers",
        (
            *("broker", "status", "kind", "zone/rack", "used", "leased", "of"),
            *("busy %", "msg/s in", "msg/s out"),
        ),
        [
            (
                *(each["broker_id"], each["status"], each["kind"], _place(each)),
                *(each["used_units"], each["leased_units"], each["capacity_units"]),
                *_load_cells(each["load"]),
            )
            for each in brokers
        ],
        extra=("kind", "zone/rack", "msg/s in", "msg/s out"),
        wide=wide,
    )


def _place(broker: dict[str, Any]) -> str:
    return "/".join(part for part in (broker["zone"], broker["rack"]) if part)


def _load_cells(load: dict[str, Any] | None) -> tuple[object, ...]:
    if load is None:
        return (_UNKNOWN,) * 3
    return (
        load["busiest_permille"] / 10,
        load["messages_in_per_second"],
        load["messages_out_per_second"],
    )


def _print_broker(broker: dict[str, Any]) -> None:
    until_ms = broker["quarantined_until_ms"]
    rows: list[tuple[str, object]] = [
        ("status", broker["status"]),
        ("session", f"{broker['session_id']}, epoch {broker['epoch']}"),
        ("quarantined until (UTC)", _time(until_ms) if until_ms else "never"),
        ("drained at, units a second", broker["drain_units_per_second"] or "the default rate")
        if broker["draining"]
        else ("drained", "no"),
        ("kind", broker["kind"]),
        ("zone, rack", f"{broker['zone'] or '-'}, {broker['rack'] or '-'}"),
        ("Pulsar, gRPC, HTTP", f"{broker['pulsar_url']} {broker['grpc']} {broker['http']}"),
        ("units used, leased", f"{broker['used_units']:,}, {broker['leased_units']:,}"),
        ("capacity", _capacity(broker)),
    ]
    load = broker["load"]
    if load is None:
        rows.append(("load", "not known yet: brokers report it once a minute"))
    else:
        rows += [
            ("load measured at (UTC)", _time(load["measured_at_ms"])),
            ("CPU of one core", f"{100 * load['cpu_fraction']:.1f} %"),
            ("memory", f"{load['memory_bytes'] // _MIB:,} MiB{_of_limit(load)}"),
            ("units assigned, open", f"{load['units']:,}, {load['open_topics']:,}"),
            (
                "connections, producers, consumers",
                f"{load['connections']:,}, {load['producers']:,}, {load['consumers']:,}",
            ),
        ]
    print_table(broker["broker_id"], ("", ""), rows)
    if load is not None:
        traffic = [{"name": "all", **load}, *load["busiest"]]
        print_table(
            "traffic a second, busiest first",
            ("topic", "messages in", "messages out", "bytes in", "bytes out"),
            [
                (
                    each["name"],
                    each["messages_in_per_second"],
                    each["messages_out_per_second"],
                    each["bytes_in_per_second"],
                    each["bytes_out_per_second"],
                )
                for each in traffic
            ],
        )


def _capacity(broker: dict[str, Any]) -> str:
    announced = broker["announced_units"]
    lowered = f", lowered from {announced:,}" if announced else ""
    return f"{broker['capacity_units']:,}{lowered}"


def _of_limit(load: dict[str, Any]) -> str:
    limit = load["memory_limit_bytes"]
    return f" of {limit // _MIB:,}" if limit else ""


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
