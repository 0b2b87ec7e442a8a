"""``python -m nextgen.harness.load.worker``: one job, reported as JSON lines.

stdin the job, then its commands, or {"stop": true}; end of file ends the process stdout
{"progress": n} and the job's other reports, then {"result": ...} or {"failed": ...}
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from typing import Any

import structlog
import uvloop

from nextgen.harness.load.job_kinds import JOBS
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import MetadataError
from nextgen.runtime.security.cluster_proof import credentials_of_environment, use_credentials
from nextgen.runtime.security.process_tls import tls_of_environment, use_tls

EXIT_PARENT_GONE = 0


async def _main() -> None:
    reader = asyncio.StreamReader(limit=16 * 1024 * 1024)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    job: dict[str, Any] = json.loads(await reader.readline())
    # stdout has the job's messages, and nothing between them.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    use_credentials(credentials_of_environment(os.environ))
    use_tls(tls_of_environment(os.environ))
    reporter = Reporter()
    listening = asyncio.create_task(_listen(reader, reporter))
    # A collection over the prepared requests would show up as a latency of the servers.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        reporter.send({"result": await JOBS[job["kind"]](job, reporter)})
    except MetadataError as error:
        reporter.send({"failed": f"{job['kind']}: {error}"})
    finally:
        listening.cancel()


async def _listen(reader: asyncio.StreamReader, reporter: Reporter) -> None:
    while line := await reader.readline():
        message = json.loads(line)
        if message.get("stop"):
            reporter.stopping.set()
        else:
            await reporter.commands.put(message)
    # The parent that wanted the result has ended.
    os._exit(EXIT_PARENT_GONE)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main())
