"""Every job a load process can do, by the kind that its description names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nextgen.harness.load.jobs.commit_probe import commit_probe
from nextgen.harness.load.jobs.create import create_batched, create_serial
from nextgen.harness.load.jobs.lookup import (
    lookup_all,
    lookup_bursts,
    lookup_one_topic,
    lookup_serial,
)
from nextgen.harness.load.jobs.lookup_at_once import lookup_at_once
from nextgen.harness.load.jobs.lookup_flood import lookup_flood
from nextgen.harness.load.jobs.lookup_stream import lookup_stream
from nextgen.harness.load.jobs.lookup_windows import lookup_windows
from nextgen.harness.load.jobs.move import move
from nextgen.harness.load.jobs.watch import change_topics, watch_topics
from nextgen.harness.load.jobs.watch_lists import watch_topic_lists
from nextgen.harness.load.pulsar.lookup import pulsar_lookup
from nextgen.harness.load.pulsar.messages import consume, produce_batched, produce_serial
from nextgen.harness.load.pulsar.publish import publish
from nextgen.harness.load.pulsar.subscribe import subscribe
from nextgen.harness.load.recorded.chaos_load import chaos_load
from nextgen.harness.load.recorded.chaos_messages import chaos_drain, chaos_publish, chaos_receive
from nextgen.harness.load.recorded.chaos_scalable import chaos_scalable
from nextgen.harness.load.recorded.chaos_watch import chaos_watch
from nextgen.harness.load.reporter import Reporter

Job = Callable[[dict[str, Any], Reporter], Awaitable[dict[str, Any]]]

JOBS: dict[str, Job] = {
    "change_topics": change_topics,
    "chaos_load": chaos_load,
    "chaos_publish": chaos_publish,
    "chaos_receive": chaos_receive,
    "chaos_drain": chaos_drain,
    "chaos_scalable": chaos_scalable,
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
    "watch_topic_lists": watch_topic_lists,
}
