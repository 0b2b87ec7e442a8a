"""``python -m cluster_manager``: one replica of the cluster manager."""

from __future__ import annotations

import os
import sys

from cluster_manager.bootstrap import COMPONENT, serve
from cluster_manager.config import ManagerConfig, parse_config
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.lifecycle.process import EXIT_REFUSED, Shutdown, run
from nextgen.runtime.telemetry.logs import configure_logging
from nextgen.runtime.telemetry.observability import observed


def main() -> None:
    """Run until a signal stops it; see ``nextgen.runtime.lifecycle.process`` for exit codes."""
    try:
        config: ManagerConfig = parse_config(sys.argv[1:], os.environ)
        configure_logging(component=COMPONENT, node=config.node_id)
    except RefusesToStart as refusal:
        sys.stderr.write(f"refuses to start: {refusal}\n")
        sys.exit(EXIT_REFUSED)

    async def serve_configured(shutdown: Shutdown) -> None:
        async with observed(
            config.tracing,
            component=COMPONENT,
            node_id=config.node_id,
            directory=config.data_directory,
        ):
            await serve(config, shutdown)

    run(serve_configured)


if __name__ == "__main__":
    main()
