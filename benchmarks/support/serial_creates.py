"""Creates topics one after the other for some seconds; prints rate and latency as one JSON line.

python -m benchmarks.support.serial_creates --target T --seconds 5 --name persistent://t/n/x
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from nextgen.client import Client
from nextgen.harness.load.measure import Latencies


async def run(target: str, seconds: float, name: str) -> dict[str, float]:
    latencies = Latencies()
    async with Client([target], timeout_ms=20_000) as client:
        await client.create_topics([f"{name}-first"])
        began = time.perf_counter()
        number = 0
        while time.perf_counter() - began < seconds:
            sent = time.perf_counter()
            await client.create_topics([f"{name}-{number}"])
            latencies.add(time.perf_counter() - sent)
            number += 1
        elapsed_s = time.perf_counter() - began
    return {"creates_per_s": round(number / elapsed_s, 1), **latencies.summary()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--name", required=True)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(run(given.target, given.seconds, given.name))))


if __name__ == "__main__":
    main()
