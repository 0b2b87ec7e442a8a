"""An operator's cluster as a site: broken through its API and by commands of its operator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.harness.chaos.faults.api_faults import ApiFaults, AskStatus
from nextgen.harness.chaos.faults.happened import Happened
from nextgen.harness.chaos.faults.hooks import Hooks, run_hook
from nextgen.harness.chaos.faults.own_faults import (
    LAG_EVENTS_MAX,
    READY_TIMEOUT_MS,
    SETTLE_INTERVAL_MS,
)
from nextgen.harness.chaos.faults.targets import Target, choose_among, unsettled
from nextgen.harness.chaos.schedule import (
    OF_CLUSTER,
    THROUGH_THE_API,
    FaultStep,
    Group,
)
from nextgen.kernel.errors import DeadlineExceeded, MetadataError
from nextgen.tasks.timeouts import timeout

NO_HOOK = "--faults names no command for it"

_GROUPS = {
    "shard": Group.SHARD_NODE,
    "broker": Group.BROKER,
    "discovery": Group.DISCOVERY,
}


class OperatorsMaker:
    """Makes faults in a cluster that an operator deployed."""

    def __init__(
        self, targets: tuple[str, ...], hooks: Hooks, *, ask: AskStatus | None = None
    ) -> None:
        self._hooks = hooks
        self._ask = ask or (lambda: gather_status(targets))
        self.api = ApiFaults(targets, self._ask)
        self._open: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}
        """The command that ends each begun fault, by node."""

    async def carry_out(self, step: FaultStep) -> Happened:
        """Make one fault and undo it.

        Raises:
            MetadataError: The cluster refused it, or the operator's command failed.
        """
        if step.kind in THROUGH_THE_API:
            return await self.api.carry_out(step)
        return await self._by_hook(step)

    async def wait_well(self, _group: Group) -> None:
        """Return when every shard has a leader and replicas that keep up.

        Raises:
            DeadlineExceeded: The cluster did not recover in time.
        """
        lacking: object = "the cluster did not answer"
        try:
            async with timeout(READY_TIMEOUT_MS / 1000):
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
        """Run the end command of every fault that has not been ended."""
        await self.api.undo_all()
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
        self.sizes[Group.UNITS] = self.sizes.get(Group.BROKER, 0)
        self.sizes[Group.SLOTS] = self.sizes.get(Group.SHARD_NODE, 0)

    def may_move(self, topics: Sequence[str]) -> None:
        """See ``Site``."""
        self.maker.api.topics = tuple(topics)

    async def leave(self) -> None:
        """See ``Site``. The cluster keeps running."""

    def put_away(self, *, keep: bool) -> None:
        """See ``Site``. The cluster's data belongs to the operator."""


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
