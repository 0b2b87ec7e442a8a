"""A whole Raft group in one process: real adapter code, virtual time, seeded network and disks.

Everything random comes from one seed. tests/simulation/engine adds faults, clients and
invariants to it; unit tests cut cables and slow disks themselves.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from nextgen.replication.config import RaftConfig
from nextgen.replication.ports import Entry, NodeId, RoleChange
from nextgen.tasks.timeouts import timeout
from tests.support.simulated.network import SimNetwork
from tests.support.simulated.node import DATA as DATA
from tests.support.simulated.node import GROUP as GROUP
from tests.support.simulated.node import SimNode as SimNode
from tests.support.simulated.process import SimProcess
from tests.support.simulated.view import SimView

CONFIG = RaftConfig(journal_segment_bytes=32 * 1024, log_tail_entries=8, snapshot_chunk_bytes=512)


class RaftSimulation:
    """Nodes and the network between them."""

    config = CONFIG

    def __init__(self, seed: int, size: int = 3) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.members = [NodeId(f"node-{number}") for number in range(1, size + 1)]
        self.network = SimNetwork(self.chance)
        self.nodes = [SimNode(self, member) for member in self.members]

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()

    async def leader(self) -> SimNode:
        """Return the one node that leads, once there is one."""
        async with timeout(30):
            while len(leading := [n for n in self.nodes if n.log and n.log.is_leader]) != 1:
                await asyncio.sleep(0.001)
        return leading[0]

    async def followers(self) -> list[SimNode]:
        leader = await self.leader()
        return [node for node in self.nodes if node is not leader]

    # For the nodes ----------------------------------------------------------------------------

    def make_view(self, node: SimNode) -> SimView:
        return SimView(node.disk, DATA)

    def saw_committed(self, node_id: NodeId, entries: Sequence[Entry]) -> None:
        """Called on each node with the entries that it newly knows to be committed."""

    def saw_role(self, node_id: NodeId, change: RoleChange) -> None:
        """Called when a node's place in the group has changed."""

    def saw_step(self, process: SimProcess) -> None:
        """Called after each callback of a node's process."""
