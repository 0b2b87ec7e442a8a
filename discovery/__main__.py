"""``python -m discovery``: one discovery node."""

from __future__ import annotations

import os
import sys

from discovery.bootstrap.serve import serve
from discovery.config import parse_config
from nextgen.runtime.lifecycle.process import Shutdown, run
from nextgen.runtime.telemetry.logs import configure_logging
from nextgen.runtime.telemetry.observability import observed


async def _main(shutdown: Shutdown) -> None:
    config = parse_config(sys.argv[1:], os.environ)
    configure_logging(component="discovery", node=config.node_id)
    async with observed(config.tracing, component="discovery", node_id=config.node_id):
        await serve(config, shutdown)


if __name__ == "__main__":
    run(_main)
