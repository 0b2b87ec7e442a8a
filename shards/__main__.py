"""``python -m shards``: one shard node."""

from __future__ import annotations

import os
import sys

from nextgen.runtime.lifecycle.process import Shutdown, run
from nextgen.runtime.telemetry.logs import configure_logging
from nextgen.runtime.telemetry.observability import observed
from shards.bootstrap import serve
from shards.config import parse_config


async def _main(shutdown: Shutdown) -> None:
    config = parse_config(sys.argv[1:], os.environ)
    configure_logging(component="shard", node=config.node_id)
    async with observed(
        config.tracing,
        component="shard",
        node_id=config.node_id,
        directory=config.data_directory,
    ):
        await serve(config, shutdown)


if __name__ == "__main__":
    run(_main)
