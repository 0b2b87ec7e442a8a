"""A cluster that somebody else runs: broken through its API, and by commands of its operator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from nextgen.cli.chaos.faults import (
    LAG_EVENTS_MAX,
    READY_TIMEOUT_MS,
    SETTLE_INTERVAL_MS,
    Happened,
)
from nextgen.cli.chaos.hooks import Hooks, run_hook
from nextgen.cli.chaos.schedule import (
    OF_CLUSTER,
    THROUGH_THE_API,
    FaultKind,
    FaultStep,
    Group,
)
from nextgen.cli.chaos.targets import Target, choose_among, unsettled
from nextgen.cli.status import gather_status
from nextgen.client import Client
from nextgen.client.channel import close_channel, open_channel
from nextgen.client.errors_wire import error_of_rpc
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Unavailable
from protos.nextgen.v1.shard_service_pb2 import TransferLeadershipRequest
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

TRANSFER_TIMEOUT_S = 10
MOVES_PER_FAULT = 8
NO_HOOK = "--faults names no command for it"

AskStatus = Callable[[], Awaitable[dict[str, Any]]]

_GROUPS = {
    "shard": Group.SHARD_NODE,
    "broker": Group.BROKER,
    "discovery": Group.DISCOVERY,
}


class OperatorsMaker:
    """Makes faults there. ``topics`` are those that may be moved: the load's own."""

    def __init__(
        self, targets: tuple[str, ...], hooks: Hooks, *, ask: AskStatus | None = None
    ) -> None:
        self.topics: Sequence[str] = ()
        self._targets = targets
        self._hooks = hooks
        self._ask = ask or (lambda: gather_status(targets))
        self._open: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}
        """The end of each fault that has begun, by its node."""

    async def carry_out(self, step: FaultStep) -> Happened:
        """Make one fault and mend it.

        Raises:
            MetadataError: The cluster, or the operator's command, says no.
        """
        if step.kind is FaultKind.TRANSFER:
            return await self._transfer(step)
        if step.kind is FaultKind.MOVE:
            return await self._move(step)
        return await self._by_hook(step)

    async def wait_well(self, _group: Group) -> None:
        """Return when every shard has a leader and replicas that keep up.

        Raises:
            DeadlineExceeded: That did not come in time.
        """
        lacking: object = "the cluster did not answer"
        try:
            async with asyncio.timeout(READY_TIMEOUT_MS / 1000):
                while lacking:
                    try:
                        lacking = unsettled(await self._ask(), LAG_EVENTS_MAX)
                    except MetadataError as error:
                        lacking = str(error)
                    if lacking:
                        await asyncio.sleep(SETTLE_INTERVAL_MS / 1000)
        except TimeoutError:
            raise DeadlineExceeded(f"not well after {READY_TIMEOUT_MS} ms: {lacking}") from None

    async def undo_all(self) -> None:
        """Run the end of every fault whose end has not been run."""
        for end, values in list(self._open.values()):
            await run_hook(end, values, timeout_ms=self._hooks.timeout_ms)
        self._open.clear()

    # ------------------------------------------------------------------------------------------

    async def _by_hook(self, step: FaultStep) -> Happened:
        hook = self._hooks.by_kind[step.kind]
        status = await self._ask()
        target, address = Target("all"), ""
        if step.group is not Group.ALL:
            names = nodes_of(status).get(step.group, {})
            target = choose_among(sorted(names), step, status)
            address = names[target.node_id]
        values = {"node": target.node_id, "grpc": address, "group": str(step.group)}
        timeout_ms = self._hooks.timeout_ms
        began_ns = time.monotonic_ns()
        self._open[target.node_id] = (hook.end, values)
        try:
            await run_hook(hook.begin, values, timeout_ms=timeout_ms)
            await asyncio.sleep(step.for_ms / 1000)
        finally:
            await run_hook(hook.end, values, timeout_ms=timeout_ms)
            del self._open[target.node_id]
        detail = "by the operator's commands"
        return Happened(step, target, began_ns, time.monotonic_ns(), True, 1, detail)

    async def _transfer(self, step: FaultStep) -> Happened:
        status = await self._ask()
        shards = [shard for shard in status["shards"] if shard["leader"]]
        if not shards:
            raise Unavailable("no shard has a leader at the moment")
        shard = shards[step.pick % len(shards)]
        others = [r["node_id"] for r in shard["replicas"] if r["node_id"] != shard["leader"]]
        if not others:
            raise Unavailable(f"shard {shard['shard_id']} has one replica only")
        target = others[step.pick % len(others)]
        addresses = {node["node_id"]: node["grpc"] for node in status["nodes"]}
        began_ns = time.monotonic_ns()
        request = TransferLeadershipRequest(shard_id=shard["shard_id"], target=target)
        await _call_transfer(addresses[shard["leader"]], request)
        return Happened(
            step,
            Target(shard["leader"], (shard["shard_id"],)),
            began_ns,
            time.monotonic_ns(),
            True,
            1,
            f"shard {shard['shard_id']} handed over to {target}",
        )

    async def _move(self, step: FaultStep) -> Happened:
        first = step.pick % max(1, len(self.topics))
        names = [*self.topics[first:], *self.topics[:first]][:MOVES_PER_FAULT]
        began_ns = time.monotonic_ns()
        async with Client(self._targets) as client:
            await client.lookup(names)
            answers = await client.move_topics(dict.fromkeys(names, ""))
        moved = sum(answer.is_found for answer in answers)
        detail = f"{moved} topics moved to other brokers"
        return Happened(step, Target("topics"), began_ns, time.monotonic_ns(), moved > 0, 1, detail)


class OperatorsCluster:
    """A ``Site``; see the module."""

    def __init__(self, targets: tuple[str, ...], service_url: str, hooks: Hooks) -> None:
        self.targets = targets
        self.service_url = service_url
        self.name = ",".join(targets)
        self.maker = OperatorsMaker(targets, hooks)
        self.kinds = [*hooks.by_kind, *THROUGH_THE_API]
        self.unavailable = {kind: NO_HOOK for kind in OF_CLUSTER if kind not in hooks.by_kind}
        self.places = {kind: hook.groups for kind, hook in hooks.by_kind.items()}
        self.sizes: dict[Group, int] = {}

    async def enter(self) -> None:
        """See ``Site``."""
        status = await gather_status(self.targets)
        self.sizes = {group: len(names) for group, names in nodes_of(status).items()}

    def may_move(self, topics: Sequence[str]) -> None:
        """See ``Site``."""
        self.maker.topics = tuple(topics)

    async def leave(self) -> None:
        """See ``Site``. The cluster goes on."""

    def put_away(self, *, keep: bool) -> None:
        """See ``Site``. What the cluster has is the operator's."""


def nodes_of(status: dict[str, Any]) -> dict[Group, dict[str, str]]:
    """Return the nodes of each group with their addresses."""
    found: dict[Group, dict[str, str]] = {}
    for node in status["nodes"]:
        group = _GROUPS.get(node["kind"])
        if group is not None:
            found.setdefault(group, {})[node["node_id"]] = node["grpc"]
    for manager in status["managers"]:
        if "error" not in manager:
            found.setdefault(Group.MANAGER, {})[manager["node_id"]] = manager["grpc"]
    return found


async def _call_transfer(endpoint: str, request: TransferLeadershipRequest) -> None:
    channel = open_channel(endpoint)
    try:
        await ShardServiceStub(channel).TransferLeadership(request, timeout=TRANSFER_TIMEOUT_S)
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    finally:
        await close_channel(channel)
