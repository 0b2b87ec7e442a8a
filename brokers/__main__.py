"""``python -m brokers``: one broker agent."""

from __future__ import annotations

import os
import sys

from brokers.bootstrap.serve import serve
from brokers.config import parse_config
from nextgen.runtime.lifecycle.process import Shutdown, run
from nextgen.runtime.telemetry.logs import configure_logging
from nextgen.runtime.telemetry.observability import observed


async def _main(shutdown: Shutdown) -> None:
    config = parse_config(sys.argv[1:], os.environ)
    configure_logging(component="broker", node=config.node_id)
    async with observed(
        config.tracing,
        component="broker",
        node_id=config.node_id,
        directory=config.ledger_dir or config.data_dir,
    ):
        await serve(config, shutdown)


if __name__ == "__main__":
    run(_main)
