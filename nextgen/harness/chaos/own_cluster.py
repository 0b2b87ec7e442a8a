"""A cluster that the run starts itself, as its site."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from nextgen.cli.local.cluster import Ended
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.chaos.faults.own_faults import FaultMaker
from nextgen.harness.chaos.faults.targets import Targets
from nextgen.harness.chaos.nodes.chaos_cluster import ChaosCluster
from nextgen.harness.chaos.schedule import OF_UNITS, FaultKind, Group


class OwnCluster:
    """A ``Site`` in ``run_dir``. Create it only to enter it: it sets up networks and disks at
    once."""

    name = ""
    places: Mapping[FaultKind, Collection[Group]] = MappingProxyType({})

    def __init__(self, size: ClusterSize, run_dir: Path, on_ended: Ended) -> None:
        self.cluster = ChaosCluster.create(size, run_dir, on_ended=on_ended)
        self.maker = FaultMaker(self.cluster, Targets(self.cluster.plan))

    @property
    def targets(self) -> tuple[str, ...]:
        return self.cluster.plan.discovery_endpoints

    @property
    def service_url(self) -> str:
        return self.cluster.plan.service_url

    @property
    def kinds(self) -> Sequence[FaultKind]:
        return [*self.cluster.kinds, *OF_UNITS, FaultKind.RESHARD]

    @property
    def unavailable(self) -> Mapping[FaultKind, str]:
        return self.cluster.unavailable

    @property
    def sizes(self) -> Mapping[Group, int]:
        return self.cluster.sizes

    async def enter(self) -> None:
        """See ``Site``."""
        await self.cluster.start()
        await self.cluster.wait_ready()

    def may_move(self, topics: Sequence[str]) -> None:
        """See ``Site``."""
        self.maker.api.topics = tuple(topics)

    async def leave(self) -> None:
        """See ``Site``."""
        await self.cluster.stop()

    def put_away(self, *, keep: bool) -> None:
        """See ``Site``."""
        if keep:
            self.cluster.keep_data()
        else:
            self.cluster.discard_data()
