"""Counters of a shard node. The labels are the shard and a few kinds: their number is bounded."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from nextgen.kernel.limits.trace import LATENCY_BUCKETS_MS
from shards.domain.assignment import (
    REASON_IDLE,
    REASON_RENAMED,
    REASON_TOPIC_DELETED,
    REASON_UNLOADED,
)
from shards.domain.scalable.vocabulary import ChangeKind

_LATENCY_SECONDS = tuple(bound / 1_000 for bound in LATENCY_BUCKETS_MS)
_LAYOUT_STEP_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
_COMMIT_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


METADATA_DELIVERY_KINDS = ("tenant", "namespace", "topic", "removed")
"""The kinds of changes that are delivered to brokers."""

METADATA_LIMITS = ("names", "parents")
"""The bounds of what a broker manager watches: names for all its brokers, and parents (tenants and
namespaces) for one session."""

LAYOUT_CHANGE_OUTCOMES = ("begun", "committed", "taken_back", "deleted")
"""What becomes of an operation on a layout at this leader; deleted: its topic was."""

SEGMENT_LOAD_OUTCOMES = ("recorded", "unchanged", "invalid", "former_owner")
"""What becomes of a reported load of a segment; unchanged: not by enough to be recorded."""

AUTO_SCALE_OUTCOMES = (
    *("evaluated", "split", "merge", "rebucket"),
    *("refused", "invalid_policy", "clock_leap", "failed"),
)
"""What becomes of evaluations of scalable topics; refused: an operation that was wanted."""

LAYOUT_CHANGE_STEPS = ("ready", "sealed", "committed")
"""The steps of an operation on a layout: children are ready, a parent takes no messages any more,
the new layout is committed. Each is timed from the one before."""

BALANCE_OUTCOMES = (
    *("even", "waiting", "planned"),
    *("moved", "refused", "nothing_here", "evacuating", "rebalancing", "recovering"),
)
"""What becomes of a round of the balance. Of a node's plan: waiting is for brokers to stay uneven,
or for their next reports. Of a shard's part: moved or refused; nothing_here: others have the units;
or why it does not begin. recovering: it is not known which units were just moved."""

BALANCE_LEFT_OUT = (
    *("no_fresh_report", "overloaded", "gets_no_units", "waits_for_a_report_of_its_last_moves"),
    *("not_a_number", "negative", "stale", "future"),
)
"""Why a broker gets no units in a plan, and why a load report is ignored."""

EVACUATION_REASONS = ("lost", "drain", "shrink", "rebalance", "balance")
"""The reasons for which units are moved away from a broker in the background."""


UNASSIGN_REASONS = (REASON_IDLE, REASON_UNLOADED, REASON_TOPIC_DELETED, REASON_RENAMED)
"""The reasons for which units leave their broker for none."""


class NodeMetrics:
    """The metrics of one process. Make ``ShardMetrics`` of it for each shard."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"nextgen_shard_{name}", text, ["shard"], registry=registry)

        self.commits = counter("committed_events", "Events committed, as seen by this replica.")
        self.lookups = counter("lookups", "Names looked up at this leader.")
        self.assignments = counter("assignments", "Units assigned by this leader, moves apart.")
        self.share_refusals = counter(
            "share_refusals", "Units refused to tenants beyond their share of capacity."
        )
        self.write_refusals = counter(
            "write_refusals", "Writes refused: too many of their tenant wait."
        )
        self.moves = counter("moves", "Units moved by this leader.")
        self.commands = counter("commands", "Inventory commands carried out by this leader.")
        self.watch_updates = counter("watch_updates", "Change stream messages with news.")
        self.watch_progress = counter("watch_progress", "Change stream messages without news.")
        self.watch_events = counter("watch_events", "Events sent on change streams.")
        self.watch_resets = counter("watch_resets", "Watches that began again with a snapshot.")
        self.watch_stalled = counter(
            "watch_stalled", "Change streams ended because their reader stalled."
        )
        self.metadata_deliveries, self.metadata_refused = _metadata_counters(registry)
        self.lookup_latency = Histogram(
            "nextgen_shard_lookup_request_seconds",
            "A request for many names, at this leader.",
            ["shard", "outcome"],
            buckets=_LATENCY_SECONDS,
            registry=registry,
        )
        self.assign_latency = Histogram(
            "nextgen_shard_assign_seconds",
            "A unit from the first lookup's arrival to its broker's sync, or to giving up.",
            ["shard", "outcome"],
            buckets=_LATENCY_SECONDS,
            registry=registry,
        )
        self.commit_latency, self.effective_latency = _write_latencies(registry)
        self.exchange_in_flight = Gauge(
            "nextgen_exchange_in_flight", "Requests being answered.", registry=registry
        )
        self.assign_requests = Counter(
            "nextgen_shard_assign_requests",
            "Requests of topic controllers here to broker managers, to bring units to brokers.",
            registry=registry,
        )
        self.delivery_messages = Counter(
            "nextgen_shard_delivery_messages",
            "Messages with deliveries that broker managers here sent to brokers.",
            registry=registry,
        )
        self.lease_requests = Counter(
            "nextgen_shard_lease_requests",
            "Requests of topic controllers here to the cluster manager, by what they are for.",
            ["kind"],
            registry=registry,
        )
        self.evacuated, self.unassigned = _departure_counters(registry)
        self._balance_rounds, self._left_out, self.imbalance = _balance_metrics(registry)
        self.loads_refused = _refused_loads(registry)
        self.layout_changes, self.layout_steps = _layout_metrics(registry)
        self.segment_loads, self.auto_scale = _scale_counters(registry)
        self.lease_renewals = self.lease_requests.labels("renewal")
        self.lease_growths = self.lease_requests.labels("growth")

    def note_balance(self, outcome: str) -> None:
        """Count a round of the balance; ``outcome`` is one of ``BALANCE_OUTCOMES``."""
        self._balance_rounds.labels(outcome).inc()

    def note_left_out(self, why: str, count: int = 1) -> None:
        """Count brokers that got no units in a plan, or reports that were ignored."""
        self._left_out.labels(why.replace(" ", "_")).inc(count)

    def counters(self) -> dict[str, int]:
        """Return the counts of all shards together, by name."""
        counted = {
            "commits": self.commits,
            "lookups": self.lookups,
            "assignments": self.assignments,
            "moves": self.moves,
            "commands": self.commands,
            "watch_updates": self.watch_updates,
            "watch_progress": self.watch_progress,
            "watch_events": self.watch_events,
            "watch_resets": self.watch_resets,
            "watch_stalled": self.watch_stalled,
            "metadata_deliveries": self.metadata_deliveries,
            "assign_requests": self.assign_requests,
            "delivery_messages": self.delivery_messages,
            "lease_requests": self.lease_requests,
            "lease_growths": self.lease_growths,
            "evacuated_units": self.evacuated,
            "unassigned_units": self.unassigned,
        }
        return {name: _total(counter) for name, counter in counted.items()}


def _departure_counters(registry: CollectorRegistry) -> tuple[Counter, Counter]:
    evacuated = Counter(
        "nextgen_shard_evacuated_units",
        "Units moved away from lost, draining or shrinking brokers, or to even them out, by why.",
        ["shard", "kind"],
        registry=registry,
    )
    unassigned = Counter(
        "nextgen_shard_unassigned_units",
        "Units that left their broker for none, by why.",
        ["shard", "kind"],
        registry=registry,
    )
    return evacuated, unassigned


def _layout_metrics(registry: CollectorRegistry) -> tuple[Counter, Histogram]:
    changes = Counter(
        "nextgen_shard_layout_changes",
        "Splits, merges and the like of scalable topics, as this leader carries them on.",
        ["kind", "outcome"],
        registry=registry,
    )
    steps = Histogram(
        "nextgen_shard_layout_step_seconds",
        "Steps of these changes: until children are ready, a parent is sealed, all is committed.",
        ["kind"],
        buckets=_LAYOUT_STEP_SECONDS,
        registry=registry,
    )
    return changes, steps


def _balance_metrics(registry: CollectorRegistry) -> tuple[Counter, Counter, Gauge]:
    rounds = Counter(
        "nextgen_shard_balance_rounds",
        "Rounds of the balance: plans of this node, and what its leaders made of them.",
        ["outcome"],
        registry=registry,
    )
    left_out = Counter(
        "nextgen_shard_balance_left_out",
        "Brokers that got no units in a plan, and load reports that were ignored, by why.",
        ["outcome"],
        registry=registry,
    )
    imbalance = Gauge(
        "nextgen_shard_balance_imbalance_permille",
        "Load of the broker furthest above its share, in permille of it, at the last plan here.",
        registry=registry,
    )
    for outcome in BALANCE_OUTCOMES:
        rounds.labels(outcome)
    for why in BALANCE_LEFT_OUT:
        left_out.labels(why)
    return rounds, left_out, imbalance


def _refused_loads(registry: CollectorRegistry) -> Counter:
    return Counter(
        "nextgen_shard_loads_refused",
        "Load reports of brokers of this leader that cannot be, and do not count.",
        registry=registry,
    )


def _scale_counters(registry: CollectorRegistry) -> tuple[Counter, Counter]:
    loads = Counter(
        "nextgen_shard_segment_loads",
        "Loads of segments that brokers reported to this leader, by what became of them.",
        ["outcome"],
        registry=registry,
    )
    evaluations = Counter(
        "nextgen_shard_auto_scale",
        "Evaluations of scalable topics at this leader, and what came of them.",
        ["outcome"],
        registry=registry,
    )
    return loads, evaluations


def _metadata_counters(registry: CollectorRegistry) -> tuple[Counter, Counter]:
    deliveries = Counter(
        "nextgen_shard_metadata_deliveries",
        "Changes of metadata delivered to brokers by this leader.",
        ["shard", "kind"],
        registry=registry,
    )
    refused = Counter(
        "nextgen_shard_metadata_refused",
        "Assignments and reports of brokers that were refused, by the limit they reached.",
        ["shard", "kind"],
        registry=registry,
    )
    return deliveries, refused


def _write_latencies(registry: CollectorRegistry) -> tuple[Histogram, Histogram]:
    committing = Histogram(
        "nextgen_shard_commit_seconds",
        "From proposal to commit.",
        ["shard"],
        buckets=_COMMIT_SECONDS,
        registry=registry,
    )
    effective = Histogram(
        "nextgen_shard_effective_seconds",
        "From the commit of an effective write until all its readers applied it.",
        ["shard"],
        buckets=_LATENCY_SECONDS,
        registry=registry,
    )
    return committing, effective


def _total(counter: Counter) -> int:
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


@dataclass(frozen=True, slots=True)
class WatchMetrics:
    """The counters of one replica's change streams."""

    updates: Counter  # Messages with changes.
    progress: Counter  # Messages with a position only.
    events: Counter
    resets: Counter
    stalled: Counter


class ShardMetrics:
    """The metrics of one shard; children are looked up once."""

    def __init__(self, node: NodeMetrics, shard_id: int) -> None:
        label = str(shard_id)
        self.commits = node.commits.labels(label)
        self.loads_refused = node.loads_refused
        self.effective_latency = node.effective_latency.labels(label)
        self.lookups = node.lookups.labels(label)
        self.assignments = node.assignments.labels(label)
        self.share_refusals = node.share_refusals.labels(label)
        self.write_refusals = node.write_refusals.labels(label)
        self.moves = node.moves.labels(label)
        self.commands = node.commands.labels(label)
        self.watches = WatchMetrics(
            updates=node.watch_updates.labels(label),
            progress=node.watch_progress.labels(label),
            events=node.watch_events.labels(label),
            resets=node.watch_resets.labels(label),
            stalled=node.watch_stalled.labels(label),
        )
        self._metadata_deliveries = {
            kind: node.metadata_deliveries.labels(label, kind) for kind in METADATA_DELIVERY_KINDS
        }
        self._metadata_refused = {
            limit: node.metadata_refused.labels(label, limit) for limit in METADATA_LIMITS
        }
        self._evacuated = {why: node.evacuated.labels(label, why) for why in EVACUATION_REASONS}
        self._unassigned = {why: node.unassigned.labels(label, why) for why in UNASSIGN_REASONS}
        self.note_balance = node.note_balance
        self._layout_changes: dict[tuple[ChangeKind, str], Counter] = {
            (kind, outcome): node.layout_changes.labels(kind.value, outcome)
            for kind in ChangeKind
            if kind is not ChangeKind.PRUNE
            for outcome in LAYOUT_CHANGE_OUTCOMES
        }
        self._segment_loads = {
            outcome: node.segment_loads.labels(outcome) for outcome in SEGMENT_LOAD_OUTCOMES
        }
        self._auto_scale = {
            outcome: node.auto_scale.labels(outcome) for outcome in AUTO_SCALE_OUTCOMES
        }
        self._layout_steps = {step: node.layout_steps.labels(step) for step in LAYOUT_CHANGE_STEPS}
        self.lookups_answered = node.lookup_latency.labels(label, "answered")
        self.lookups_failed = node.lookup_latency.labels(label, "failed")
        self.assign_latency = node.assign_latency.labels(label, "synced")
        self.assign_given_up = node.assign_latency.labels(label, "given_up")
        self.commit_latency = node.commit_latency.labels(label)

    def metadata_delivered(self, kind: str) -> None:
        """Count a change delivered to a broker; ``kind`` is one of ``METADATA_DELIVERY_KINDS``."""
        self._metadata_deliveries[kind].inc()

    def metadata_was_refused(self, limit: str) -> None:
        """Count metadata refused beyond a limit; ``limit`` is one of ``METADATA_LIMITS``."""
        self._metadata_refused[limit].inc()

    def note_evacuated(self, why: str, units: int) -> None:
        """Count units that left a broker; ``why`` is one of ``EVACUATION_REASONS``."""
        self._evacuated[why].inc(units)

    def note_unassigned(self, reason: str, units: int) -> None:
        """Count units that left for no broker; ``reason`` is one of ``UNASSIGN_REASONS``."""
        self._unassigned[reason].inc(units)

    def note_layout_change(self, kind: ChangeKind, outcome: str) -> None:
        """Count an operation; ``outcome`` is one of ``LAYOUT_CHANGE_OUTCOMES``."""
        self._layout_changes[kind, outcome].inc()

    def note_segment_load(self, outcome: str) -> None:
        """Count a reported load; ``outcome`` is one of ``SEGMENT_LOAD_OUTCOMES``."""
        self._segment_loads[outcome].inc()

    def note_auto_scale(self, outcome: str) -> None:
        """Count an evaluation, or what came of it: one of ``AUTO_SCALE_OUTCOMES``."""
        self._auto_scale[outcome].inc()

    def note_layout_step(self, step: str, seconds: float) -> None:
        """Note what a step took; ``step`` is one of ``LAYOUT_CHANGE_STEPS``."""
        self._layout_steps[step].observe(seconds)
