"""``python -m brokers``: one broker agent."""

from __future__ import annotations

import os
import sys

from brokers.bootstrap import serve
from brokers.config import parse_config
from nextgen.runtime.logs import configure_logging
from nextgen.runtime.process import Shutdown, run


async def _main(shutdown: Shutdown) -> None:
    config = parse_config(sys.argv[1:], os.environ)
    configure_logging(component="broker", node=config.node_id)
    await serve(config, shutdown)


if __name__ == "__main__":
    run(_main)
