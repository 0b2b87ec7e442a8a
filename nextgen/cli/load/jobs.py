"""Every job a load process can do, by the kind that its description names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nextgen.cli.load.burst_job import lookup_at_once
from nextgen.cli.load.chaos_load_job import chaos_load
from nextgen.cli.load.chaos_message_jobs import chaos_drain, chaos_publish, chaos_receive
from nextgen.cli.load.chaos_watch_job import chaos_watch
from nextgen.cli.load.commit_job import commit_probe
from nextgen.cli.load.create_jobs import create_batched, create_serial
from nextgen.cli.load.flood_job import lookup_flood
from nextgen.cli.load.lookup_jobs import lookup_all, lookup_bursts, lookup_one_topic, lookup_serial
from nextgen.cli.load.message_jobs import consume, produce_batched, produce_serial
from nextgen.cli.load.move_job import move
from nextgen.cli.load.publish_job import publish
from nextgen.cli.load.pulsar_lookup_job import pulsar_lookup
from nextgen.cli.load.reporter import Reporter
from nextgen.cli.load.stream_job import lookup_stream
from nextgen.cli.load.subscribe_job import subscribe
from nextgen.cli.load.watch_jobs import change_topics, watch_topics
from nextgen.cli.load.window_job import lookup_windows

Job = Callable[[dict[str, Any], Reporter], Awaitable[dict[str, Any]]]

JOBS: dict[str, Job] = {
    "change_topics": change_topics,
    "chaos_load": chaos_load,
    "chaos_publish": chaos_publish,
    "chaos_receive": chaos_receive,
    "chaos_drain": chaos_drain,
    "chaos_watch": chaos_watch,
    "create_batched": create_batched,
    "create_serial": create_serial,
    "commit_probe": commit_probe,
    "lookup_all": lookup_all,
    "lookup_serial": lookup_serial,
    "lookup_at_once": lookup_at_once,
    "lookup_bursts": lookup_bursts,
    "lookup_flood": lookup_flood,
    "lookup_one_topic": lookup_one_topic,
    "lookup_stream": lookup_stream,
    "lookup_windows": lookup_windows,
    "move": move,
    "produce_batched": produce_batched,
    "produce_serial": produce_serial,
    "consume": consume,
    "pulsar_lookup": pulsar_lookup,
    "publish": publish,
    "subscribe": subscribe,
    "watch_topics": watch_topics,
}
