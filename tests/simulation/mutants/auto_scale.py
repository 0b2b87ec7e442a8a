"""The guards of topics that are split and merged by themselves: findings of PIP-483's review."""

from __future__ import annotations

from brokers.service.session.segment_loads import SegmentLoads as MeasuredLoads
from nextgen.kernel.governance import auto_scale_policy, policies
from nextgen.kernel.scalable import auto_scale, layout_operations, segment_load
from shards.domain.scalable import loads
from shards.inventory.commands import InventoryCommands
from shards.scalable.consumer_grace import ConsumerGrace
from shards.scalable.scaling.auto_scaler import AutoScaler
from shards.scalable.scaling.ownerless_segments import OwnerlessSegments
from shards.scalable.scaling.segment_loads import SegmentLoads
from tests.simulation.mutants.mutant import Edit, Mutant

_SCALER = "tests/unit/shards/scalable/test_auto_scaler.py"
_RECORDS = ("tests/unit/shards/scalable/test_segment_loads.py",)
_LOADS = ("tests/unit/shards/domain/scalable/test_loads.py",)
_DECISION = ("tests/unit/kernel/scalable/test_auto_scale.py",)
_SEGMENT_LOAD = ("tests/unit/kernel/scalable/test_segment_load.py",)
_OWNERLESS = ("tests/unit/shards/scalable/test_ownerless_segments.py",)
_MEASURED = ("tests/unit/brokers/service/session/test_segment_loads.py",)
_POLICY = ("tests/unit/kernel/governance/test_auto_scale_policy.py",)


def _of_scaler(test: str) -> tuple[str, ...]:
    return (f"{_SCALER}::{test}",)


MUTANTS = (
    Mutant(
        "auto-scale-1-dead-after-a-failure",
        "SC18",
        "a topic whose evaluation failed is evaluated again",
        (
            Edit(
                AutoScaler,
                "_try",
                'report("auto_scale_evaluation", error)\n'
                "        self._note_at(name, now + _FAILED_SECONDS)",
                'report("auto_scale_evaluation", error)',
            ),
        ),
        _of_scaler("test_a_topic_whose_evaluation_fails_is_evaluated_again"),
    ),
    Mutant(
        "auto-scale-2-loads-outlive-their-segments",
        "SC19",
        "the load of a segment goes with the event that ends it",
        (Edit(loads, "_changed", "if key not in ended", ""),),
        _LOADS,
    ),
    Mutant(
        "auto-scale-2-known-of-an-earlier-epoch",
        "SC19",
        "what a broker knows of a segment goes with its epoch",
        (
            Edit(
                MeasuredLoads,
                "measure",
                "known is None or known.epoch != unit.epoch",
                "known is None",
            ),
        ),
        _MEASURED,
    ),
    Mutant(
        "auto-scale-3-unseen-above-a-threshold",
        "SC19",
        "a step over a threshold is written however small it is",
        (Edit(segment_load, "is_material", "or (now > split) is not (then > split)", ""),),
        _SEGMENT_LOAD,
    ),
    Mutant(
        "auto-scale-4-a-record-for-each-report",
        "SC19",
        "a load that is on record already is not written",
        (
            Edit(
                segment_load,
                "newly_recorded",
                "is_material(written, rates, policy, change)",
                "is_material(None, rates, policy, change)",
            ),
        ),
        _RECORDS,
    ),
    Mutant(
        "auto-scale-4-cold-since-the-last-record",
        "SC19",
        "a cold segment keeps the time since which it is cold",
        (
            Edit(
                segment_load,
                "cold_since",
                "since_ms if is_kept else now_ms",
                "now_ms",
            ),
        ),
        _LOADS,
    ),
    Mutant(
        "auto-scale-5-absurd-when-resolved",
        "SC18",
        "levels that contradict each other are no policy",
        (Edit(auto_scale_policy, "problem", "split <= merge", "False"),),
        _POLICY,
    ),
    Mutant(
        "auto-scale-5-absurd-when-set",
        "SC18",
        "a policy that makes no sense is refused when it is set",
        (Edit(policies, "_check_stored", "name == AUTO_SCALE_POLICY and", "False and"),),
        _of_scaler("test_a_policy_that_makes_no_sense_is_refused_when_it_is_set"),
    ),
    Mutant(
        "auto-scale-6-no-cooldown",
        "SC20",
        "the time of the last split is in the log",
        (
            Edit(
                layout_operations,
                "clocks_after",
                "split_at_ms=committed_at_ms",
                "split_at_ms=0",
            ),
        ),
        _of_scaler("test_a_cooldown_counts_on_behind_a_failover"),
    ),
    Mutant(
        "auto-scale-7-policies-read-late",
        "SC18",
        "a changed policy has its topic evaluated",
        (
            Edit(
                InventoryCommands,
                "_decide_topic",
                "isinstance(order, SetPolicies) and answer.commit",
                "False",
            ),
        ),
        _of_scaler("test_every_setting_takes_effect_at_once"),
    ),
    Mutant(
        "auto-scale-7-settings-read-late",
        "SC24",
        "a changed setting has every topic evaluated",
        (Edit(AutoScaler, "_settings_changed", "before != self._evaluated_by", "False"),),
        ("tests/unit/shards/scalable/scaling/test_service_settings.py",),
    ),
    Mutant(
        "auto-scale-7-an-interval-to-its-end",
        "SC24",
        "a wait that has begun ends by the present interval",
        (Edit(MeasuredLoads, "settings_changed", "self._interval.changed()", "pass"),),
        _MEASURED,
    ),
    Mutant(
        "auto-scale-8-one-split-for-a-burst",
        "SC18",
        "the end of a cool-down has the topic evaluated",
        (
            Edit(
                AutoScaler,
                "_evaluate",
                "self._note_at(name, self._clock.monotonic() + left_s)",
                "pass",
            ),
        ),
        _of_scaler("test_a_burst_of_consumers_is_answered_at_one_split_for_each_cooldown"),
    ),
    Mutant(
        "auto-scale-8-deaf-during-an-evaluation",
        "SC18",
        "what comes during an evaluation has the topic evaluated once more",
        (
            Edit(
                AutoScaler,
                "_run",
                "await self._try(name, namespace, policies)",
                "await self._try(name, namespace, policies); self._due.pop(name, None)",
            ),
        ),
        _of_scaler("test_a_consumer_that_comes_during_an_evaluation_is_not_overlooked"),
    ),
    Mutant(
        "auto-scale-removed-consumers-unnoticed",
        "SC18",
        "a consumer that is removed has its topic evaluated",
        (Edit(ConsumerGrace, "_propose_removal", "self.on_removed(member.topic)", "pass"),),
        _of_scaler("test_a_consumer_that_expires_has_the_topic_evaluated"),
    ),
    Mutant(
        "auto-scale-merges-what-splits-again",
        "SC18",
        "a pair is not merged that the same traffic would split again",
        (
            Edit(
                auto_scale._Look,
                "_held_back",
                "self._would_split_again(first, second)",
                "False",
            ),
        ),
        _DECISION,
    ),
    Mutant(
        "auto-scale-believes-leaping-clocks",
        "SC22",
        "a time far ahead of the clock does not count",
        (
            Edit(
                segment_load,
                "is_believed",
                "return time_ms <= now_ms + AUTO_SCALE_CLOCK_LEAP_MS",
                "return True",
            ),
        ),
        _DECISION,
    ),
    Mutant(
        "auto-scale-hears-former-owners",
        "SC19",
        "only the present owner of a segment has its loads recorded",
        (Edit(SegmentLoads, "_place", "if not of_owner or topic", "if topic"),),
        _RECORDS,
    ),
    Mutant(
        "auto-scale-ownerless-segments-stay-hot",
        "SC21",
        "a segment without an owner for two report intervals has no traffic",
        (Edit(OwnerlessSegments, "silent", "dict.fromkeys(silent, _NO_TRAFFIC)", "{}"),),
        _OWNERLESS,
    ),
    Mutant(
        "auto-scale-ownerless-segments-cool-at-once",
        "SC21",
        "a segment that another broker may have in a moment keeps its load",
        (Edit(OwnerlessSegments, "silent", "if at + silence_s <= now", "if True"),),
        _OWNERLESS,
    ),
    Mutant(
        "auto-scale-marks-of-a-clock-that-leapt",
        "SC22",
        "a segment that a clock far ahead marked as cold is marked anew",
        (
            Edit(
                segment_load,
                "newly_recorded",
                "if cold_since(last, rates, policy, now_ms, leapt_at_ms) == last.cold_since_ms:",
                "if bool(cold_since(last, rates, policy, now_ms)) is bool(last.cold_since_ms):",
            ),
        ),
        _LOADS,
    ),
    Mutant(
        "auto-scale-windows-end-when-the-clock-leaps",
        "SC22",
        "the window of a merge begins anew when the leader's clock leaps",
        (Edit(AutoScaler, "_now_ms", "self._leapt_at_ms = now_ms", "pass"),),
        ("tests/unit/shards/scalable/test_auto_scale_clocks.py",),
    ),
)
