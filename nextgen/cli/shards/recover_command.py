"""``shards recover``: promotes the last replica of a shard, or of the cluster manager."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from nextgen.kernel.errors import InvalidRequest

CLUSTER_MANAGER = 0


def recover(
    shard: Annotated[
        int, typer.Argument(min=0, metavar="SHARD", help="Shard id; 0 is the cluster manager.")
    ],
    node_dir: Annotated[
        Path, typer.Option("--node-dir", help="Data directory of the survivor, which is stopped.")
    ],
    lost: Annotated[
        list[str], typer.Option("--lost", help="Node id that is gone for good; once for each.")
    ],
    peers: Annotated[
        str, typer.Option("--peers", help="Of a cluster manager: its flag --peers, as it is.")
    ] = "",
) -> None:
    """Promote the last replica of SHARD when the disks of all its other voters are gone for good.

    What only they had is lost. Refused while one of them answers or is not declared lost.
    """
    arguments = ["--node-dir", str(node_dir)]
    for node_id in lost:
        arguments += ["--lost", node_id]
    if shard == CLUSTER_MANAGER:
        if not peers:
            raise InvalidRequest("the cluster manager's replicas are named by --peers")
        command = ["cluster_manager.recover", "--peers", peers]
    else:
        command = ["shards.recover", "--shard", str(shard)]
    done = subprocess.run([sys.executable, "-m", *command, *arguments], check=False)
    raise typer.Exit(done.returncode)
