"""``perf create``: topics created in batches, and one by one."""

from __future__ import annotations

from typing import Any

from nextgen.harness.perf.bench import Bench, check_count


async def measure_create(
    bench: Bench, *, topics: int, batch: int, in_flight: int, serial: int
) -> dict[str, Any]:
    """Return the measurement: a batched run, then serial creates.

    Raises:
        CheckFailed: The shards' logs did not grow by as many events as topics were created.
    """
    before = await bench.committed_events()
    batched = await bench.run(
        "create_batched",
        "creating in batches",
        topics,
        topics=bench.topics("batched", topics).as_json(),
        batch=batch,
        in_flight=in_flight,
    )
    one_by_one = await bench.run(
        "create_serial",
        "creating one by one",
        serial,
        topics=bench.topics("serial", serial).as_json(),
    )
    created = batched["count"] + one_by_one["count"]
    events = await bench.committed_events() - before
    check_count("created topics", created, events)
    return {
        "benchmark": "create",
        "rate": round(batched["count"] / batched["seconds"]),
        "rate_unit": "topics/s",
        **batched["batch_ms"],
        "seconds": round(batched["seconds"], 3),
        "serial_p50": one_by_one["latency_ms"]["p50"],
        "serial_p99": one_by_one["latency_ms"]["p99"],
        "serial_max": one_by_one["latency_ms"]["max"],
        "errors": batched["errors"] + one_by_one["errors"],
        "first_error": batched["first_error"],
        "events_counted_by_shards": events,
        "run": {"topics": topics, "batch": batch, "batches_in_flight": in_flight, "serial": serial},
    }
