"""The guards between shadow topics and their sources, which live in different shards."""

from __future__ import annotations

from shards.domain import topic
from shards.inventory.parents.gates import ParentGates
from shards.inventory.shadows.sources import ShadowSources
from shards.inventory.shadows.topics import ShadowTopics
from shards.inventory.topic_creation import TopicCreation
from tests.simulation.mutants.mutant import Edit, Mutant

_SHADOWS = ("tests/unit/shards/inventory/test_shadows.py",)
_RACES = ("tests/unit/shards/inventory/test_shadow_races.py",)

MUTANTS = (
    Mutant(
        "records-no-shards-of-shadows",
        "SH10",
        "a shard is recorded at the source before it opens a gate for it",
        (
            Edit(
                ShadowSources,
                "_admit",
                "decision = shadow_source.decide(held, order)",
                "decision = Accepted(())",
            ),
        ),
        _RACES + _SHADOWS,
    ),
    Mutant(
        "admits-shadows-during-a-deletion",
        "SH10",
        "a source that is held admits no shadow before the hold is ended",
        (Edit(ShadowSources, "_admit", "if held is not None and held.is_held:", "if False:"),),
        _RACES + _SHADOWS,
    ),
    Mutant(
        "believes-a-source-that-was-read-before",
        "SH10, SH11",
        "a shadow is created only if its source's gate is as it was when the source was read",
        (
            Edit(
                ParentGates,
                "_admit",
                "if read is None or read.gate_version != self._version(parent):",
                "if read is None:",
            ),
        ),
        _SHADOWS + _RACES,
    ),
    Mutant(
        "disconnects-clients-of-a-source-that-stays",
        "SH10",
        "owners are not asked to end a source that has shadows",
        (
            Edit(
                ShadowSources,
                "_begin_deletion",
                "if shadows:",
                "if False:",
            ),
        ),
        _SHADOWS,
    ),
    Mutant(
        "lets-sources-become-scalable",
        "SH10",
        "neither a source nor a shadow becomes scalable",
        (
            Edit(
                TopicCreation,
                "_check_migration",
                "if new.spec.migrates else None",
                "if 0 else None",
            ),
        ),
        _SHADOWS,
    ),
    Mutant(
        "grows-sources-alone",
        "SH11",
        "the shadows of a source grow before it",
        (
            Edit(
                ShadowSources,
                "_grow",
                "await self._grow_shadows(source, partitions)",
                "pass",
            ),
        ),
        _RACES + _SHADOWS,
    ),
    Mutant(
        "grows-shadows-behind-open-gates",
        "SH11",
        "the growth of shadows changes their gate, also where there are none yet",
        (Edit(ShadowTopics, "grow", "events += decision.events", "pass"),),
        _SHADOWS,
    ),
    Mutant(
        "leaves-deleted-shadows-listed",
        "SH12",
        "a shadow is taken out of its source's list before it goes",
        (
            Edit(
                ShadowTopics,
                "delete",
                "if self._topics.refusal(name, before, body) is None:",
                "if False:",
            ),
        ),
        _SHADOWS,
    ),
    Mutant(
        "unlists-shadows-that-stay",
        "SH12",
        "a shadow is taken out of its source's list only if nothing else is in the way",
        (
            Edit(
                ShadowTopics,
                "delete",
                "if self._topics.refusal(name, before, body) is None:",
                "if True:",
            ),
        ),
        _SHADOWS,
    ),
    Mutant(
        "forgets-deletions-that-were-broken-off",
        "SH13",
        "gates that a broken deletion closed are opened again",
        (
            Edit(
                ShadowSources,
                "_give_deletion_up",
                "if source is not None and source.is_deleting:",
                "if False:",
            ),
        ),
        _RACES + _SHADOWS,
    ),
    Mutant(
        "forgets-growths-that-were-broken-off",
        "SH13",
        "a growth that was broken off is finished by the next shadow",
        (
            Edit(
                ShadowSources,
                "_settle",
                "if source is not None and source.growing_to:",
                "if False:",
            ),
        ),
        _SHADOWS + _RACES,
    ),
    Mutant(
        "changes-the-source-of-a-topic",
        "SH15",
        "the property that names a source is never changed",
        (
            Edit(
                topic,
                "_decide_set_properties",
                "if _source(command.properties) != _source(topic.properties):",
                "if False:",
            ),
        ),
        _SHADOWS,
    ),
)
