"""The guards of scalable topics' layouts: who may serve a segment, what watchers are sent."""

from __future__ import annotations

from discovery.service.lookups.shard_lookups import ShardLookups
from nextgen.client.scalable_topics import shared_layout
from nextgen.client.scalable_topics.shared_layout import SharedLayout
from nextgen.client.scalable_topics.shared_layouts import LayoutPlace, SharedLayouts
from nextgen.pulsar.scalable_topics.layout_session import LayoutSession
from shards.assignment.unit_planner import UnitPlanner
from shards.domain import lookup
from shards.domain.scalable import layout_changes, retention
from shards.domain.scalable.state import ScalableTopic
from shards.inventory import topic_creation
from shards.moves import recent_moves
from shards.scalable.pruning import Pruning
from shards.watches.change_watch import Selection
from tests.simulation.mutants.mutant import Edit, Mutant

_COMMANDS = ("tests/unit/shards/inventory/scalable/test_commands.py",)
_LOOKUP = ("tests/unit/shards/domain/test_lookup.py",)
_SEGMENTS = ("tests/unit/shards/assignment/test_segments.py",)
_SHARED = ("tests/unit/client/scalable_topics/test_shared_layouts.py",)
_SESSION = ("tests/unit/pulsar/scalable_topics/test_layout_session.py",)
_DOMAIN = ("tests/unit/shards/domain/scalable/test_layout_changes.py",)
_PRUNING = ("tests/unit/shards/scalable/test_pruning.py",)
_LEASE_WAITS = ("tests/unit/shards/watches/test_lease_waits.py",)

MUTANTS = (
    Mutant(
        "twins-of-one-name",
        "SC2",
        "a classic topic and a scalable one of one name never coexist",
        (
            Edit(
                topic_creation,
                "_decide",
                "before is None and twin is not None",
                "False",
            ),
        ),
        _COMMANDS,
    ),
    Mutant(
        "segments-of-any-range",
        "SC3",
        "a segment is served with the very range that the layout lists",
        (Edit(lookup, "check_listed", "if segment.descriptor != wanted:", "if False:"),),
        _LOOKUP,
    ),
    Mutant(
        "segments-of-any-layout",
        "SC3",
        "a segment that the layout does not list is assigned to nobody",
        (Edit(UnitPlanner, "_check_served", "and name.segment is not None", "and False"),),
        _SEGMENTS,
    ),
    Mutant(
        "children-for-everyone",
        "SC3",
        "a child is served for its operation alone until the layout has it",
        (Edit(lookup, "check_listed", "if may_be_planned and segment", "if segment"),),
        _LOOKUP,
    ),
    Mutant(
        "segments-apart-from-their-topic",
        "A4",
        "a lease of segments covers the scalable topic that they are of",
        (Edit(Selection, "may_depend_on", "if name.startswith(_SCALABLE):", "if False:"),),
        _LEASE_WAITS,
    ),
    Mutant(
        "layout-changes-unnoticed",
        "SC6",
        "a watcher is woken by each change of the segments",
        (
            Edit(
                SharedLayout,
                "take_topic",
                "is_first or _graph_of(before) != _graph_of(topic)",
                "is_first",
            ),
        ),
        _SHARED,
    ),
    Mutant(
        "layout-changes-lost-between-two-looks",
        "SC6",
        "what changed since a watcher looked is not missed",
        (
            Edit(
                LayoutPlace,
                "next_graph_change",
                "self._seen_graph",
                "self.shared.graph_changes",
            ),
        ),
        (*_SHARED, *_SESSION),
    ),
    Mutant(
        "layouts-absent-by-a-watch",
        "SC6",
        "no topic is called absent before its shard's leader was asked",
        (Edit(SharedLayouts, "_seek", "if not await self._exists(name):", "if True:"),),
        _SHARED,
    ),
    Mutant(
        "absent-segments-remembered",
        "SC3",
        "that a segment is absent is not remembered, as no watch says when it comes",
        (Edit(ShardLookups, "_note_absence", "if topic.segment is None:", "if True:"),),
        ("tests/unit/discovery/service/test_absent_lookups.py",),
    ),
    Mutant(
        "layouts-sent-without-room",
        "SC6",
        "an update leaves when the client has read the one before",
        (Edit(LayoutSession, "_follow", "await self._client.until_writable()", "pass"),),
        _SESSION,
    ),
    Mutant(
        "layout-watchers-woken-at-once",
        "SC6",
        "a change wakes some watchers of a layout, and serves others before the next ones",
        (
            Edit(
                shared_layout,
                "_wake",
                "for woken in waiting[:LAYOUT_WAKES_AT_ONCE_MAX]:",
                "for woken in waiting:",
            ),
        ),
        _SHARED,
    ),
    Mutant(
        "layouts-with-brokers-that-went",
        "SC6",
        "watchers of a layout share what was made of it while its owners are the same",
        (
            Edit(
                SharedLayout,
                "known",
                "self._known[:2] == (self.changes, url_of)",
                "self._known[0] == self.changes",
            ),
        ),
        _SHARED,
    ),
    Mutant(
        "prunes-what-is-not-drained",
        "SC11",
        "a segment is pruned when every subscription with cursors has drained it",
        (Edit(layout_changes, "_decide_prune", "if segment_id not in drained:", "if False:"),),
        (*_DOMAIN, *_PRUNING),
    ),
    Mutant(
        "prunes-the-middle",
        "SC11",
        "a segment is pruned when no parent of it is left in the layout",
        (
            Edit(
                layout_changes,
                "_decide_prune",
                "if not gone.issuperset(topic.segments[segment_id].parents):",
                "if False:",
            ),
        ),
        _DOMAIN,
    ),
    Mutant(
        "prunes-what-a-queue-has-not-read",
        "SC11",
        "a subscription that only the broker knows keeps a segment",
        (Edit(retention, "kept_until_ms", "if not usage.is_drained:", "if False:"),),
        _PRUNING,
    ),
    Mutant(
        "prunes-several-at-a-time",
        "SC11",
        "nothing is pruned while earlier segments of the topic are being removed",
        (Edit(ScalableTopic, "prunable", "if self.removals:", "if False:"),),
        _DOMAIN,
    ),
    Mutant(
        "examines-all-in-each-term",
        "SC11",
        "a new leader examines no segment before its time",
        (
            Edit(
                ScalableTopic,
                "prune_at_ms",
                "max(1, self.postponed.get(each.segment_id, 0))",
                "1",
            ),
            Edit(Pruning, "_examine", "topic.postponed.get(number, 0) > now_ms", "False"),
        ),
        _PRUNING,
    ),
    Mutant(
        "deleted-segments-without-owners-stay",
        "SC12",
        "a new leader has the messages of a deleted topic's idle segments removed",
        (Edit(recent_moves, "_units_of", "for segment in topic.segments:", "for segment in ():"),),
        ("tests/unit/shards/moves/test_recent_moves.py",),
    ),
)
