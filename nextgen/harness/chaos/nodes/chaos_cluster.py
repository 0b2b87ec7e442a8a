"""A local cluster whose processes can be broken: own networks, own disks, control files.

Faults that this machine does not allow are listed in ``unavailable`` and are not made. All
networks and disks are removed at the end, however the run ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nextgen.cli.local.cluster import Ended, LocalCluster
from nextgen.cli.local.plan import (
    MODULES,
    ClusterPlan,
    ClusterSize,
    NodePlan,
    make_plan_on_free_ports,
)
from nextgen.harness.chaos.nodes.control_file import ControlFile
from nextgen.harness.chaos.nodes.disks import MountRefused, SmallDisk, mount, unmount
from nextgen.harness.chaos.nodes.network import NodeNetwork
from nextgen.harness.chaos.schedule import OF_CLUSTER, FaultKind, Group
from nextgen.kernel.errors import Unavailable

DISK_MIB = 512
"""Size of the disk of a node with a log: enough for half an hour. The disk is in memory."""

_CONTROL_FOLDER = "control"


class ChaosCluster(LocalCluster):
    """See the module. A context manager, like ``LocalCluster``; prepare it with ``create``."""

    def __init__(
        self,
        plan: ClusterPlan,
        data_dir: Path,
        network: NodeNetwork | None,
        disks: Mapping[str, SmallDisk],
        unavailable: Mapping[FaultKind, str],
        *,
        on_ended: Ended | None = None,
    ) -> None:
        super().__init__(plan, data_dir, on_ended=on_ended)
        self.network = network
        self.disks = disks
        self.unavailable = unavailable
        folder = self.data_dir / _CONTROL_FOLDER
        folder.mkdir(parents=True)
        self.controls = {
            node.node_id: ControlFile.create(folder / node.node_id) for node in plan.nodes
        }

    @staticmethod
    def create(size: ClusterSize, data_dir: Path, *, on_ended: Ended | None = None) -> ChaosCluster:
        """Create networks and disks for a cluster in ``data_dir``, as far as this process may.

        Raises:
            RefusesToStart: There are no free ports.
        """
        unavailable: dict[FaultKind, str] = {}
        plan = make_plan_on_free_ports(size, cluster_id="chaos")
        network: NodeNetwork | None = NodeNetwork([node.node_id for node in plan.nodes])
        assert network is not None
        try:
            network.set_up()
            plan = _at_addresses(plan, network)
        except Unavailable as error:
            network = None
            unavailable[FaultKind.PARTITION] = str(error)
        disks: dict[str, SmallDisk] = {}
        try:
            for node in plan.nodes:
                if node.has_raft:
                    path = data_dir.absolute() / node.node_id
                    path.mkdir(parents=True)
                    mount(path, DISK_MIB)
                    disks[node.node_id] = SmallDisk(path)
        except MountRefused as error:
            unavailable[FaultKind.DISK_FULL] = str(error)
        return ChaosCluster(plan, data_dir, network, disks, unavailable, on_ended=on_ended)

    @property
    def kinds(self) -> list[FaultKind]:
        """The kinds of faults that can be made to its processes."""
        return [kind for kind in OF_CLUSTER if kind not in self.unavailable]

    @property
    def sizes(self) -> dict[Group, int]:
        groups = (Group.SHARD_NODE, Group.MANAGER, Group.BROKER, Group.DISCOVERY)
        sizes = {group: len(self.plan.of_kind(group)) for group in groups}
        return sizes | {
            Group.UNITS: sizes[Group.BROKER],
            Group.SLOTS: sizes[Group.SHARD_NODE],
        }

    def command_of(self, node: NodePlan) -> list[str]:
        """Return the command of a node's process, in its network and with the launcher."""
        entering = self.network.entering(node.node_id) if self.network else []
        return [
            *entering,
            sys.executable,
            "-m",
            "nextgen.harness.chaos.nodes.launcher",
            str(self.data_dir / _CONTROL_FOLDER / node.node_id),
            MODULES[node.kind],
            *self.plan.arguments(node, self.data_dir),
            # Their addresses are of networks that are on this machine only.
            *(["--insecure", "true"] if self.network else []),
        ]

    async def stop(self) -> None:
        """Stop every process and remove the networks; data and disks stay."""
        await super().stop()
        if self.network is not None:
            await asyncio.to_thread(self.network.remove)

    def keep_data(self) -> None:
        """Copy the content of the disks in memory to their mount points, and unmount them."""
        for node_id, disk in self.disks.items():
            copy = disk.path.with_name(f"{node_id}.kept")
            disk.free()
            shutil.copytree(disk.path, copy, dirs_exist_ok=True)
            unmount(disk.path)
            disk.path.rmdir()
            os.rename(copy, disk.path)

    def discard_data(self) -> None:
        """Unmount the disks, which deletes their content."""
        for disk in self.disks.values():
            unmount(disk.path)
        for control in self.controls.values():
            control.close()


def _at_addresses(plan: ClusterPlan, network: NodeNetwork) -> ClusterPlan:
    nodes = tuple(replace(node, host=network.address(node.node_id)) for node in plan.nodes)
    return replace(plan, nodes=nodes)
