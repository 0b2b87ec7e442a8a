"""The guards of the balance: what keeps it from swinging, and every node at the same plan."""

from __future__ import annotations

from shards.domain.placement import balance, measured_loads, rebalance
from shards.domain.placement.balance import Balance
from shards.domain.placement.measured_loads import BrokerMeasured, MeasuredLoads
from tests.simulation.mutants.mutant import Edit, Mutant

_PLACEMENT = "tests/unit/shards/domain/placement"
_BALANCE = (f"{_PLACEMENT}/test_balance.py",)
_NODES = (f"{_PLACEMENT}/test_balance_of_shards.py",)
_LOADS = (f"{_PLACEMENT}/test_measured_loads.py",)
_REBALANCE = (f"{_PLACEMENT}/test_rebalance.py",)

MUTANTS = (
    Mutant(
        "balance-reports-count-when-they-arrive",
        "BA1",
        "a report belongs to the round in which it was measured",
        (Edit(MeasuredLoads, "take", "report.measured_at_ms > self._until_ms", "False"),),
        (*_LOADS, *_NODES),
    ),
    Mutant(
        "balance-plans-from-the-time-of-the-call",
        "BA1",
        "the times of a plan count from the end of its round",
        (Edit(Balance, "plan", "settings, ended_ms) if", "settings, now_ms) if"),),
        (*_BALANCE, *_NODES),
    ),
    Mutant(
        "balance-hits-without-reports",
        "BA2",
        "only a round with a new report counts",
        (Edit(Balance, "_count_hits", "measured_at_ms > broker.counted_ms", "True"),),
        _BALANCE,
    ),
    Mutant(
        "balance-every-hit-in-full",
        "BA2",
        "a round that is hardly beyond the start counts less",
        (Edit(balance, "_hits", "min(1000, beyond)", "1000"),),
        _BALANCE,
    ),
    Mutant(
        "balance-hits-of-both-sides",
        "BA2",
        "a round within the start begins the count anew",
        (Edit(balance, "_hits", "return 0", "return before"),),
        _BALANCE,
    ),
    Mutant(
        "balance-without-smoothing",
        "DR6",
        "rates are smoothed over reports",
        (
            Edit(
                measured_loads,
                "smoothed",
                "return known + max(1, step) * (1 if reported > known else -1)",
                "return reported",
            ),
        ),
        (*_LOADS, *_BALANCE),
    ),
    Mutant(
        "balance-swaps-a-giant",
        "BA3",
        "a unit that brings two brokers hardly nearer stays",
        (Edit(rebalance, "_fits", "weight + (weight - UNIT_WEIGHT) // 3 < gap", "weight < gap"),),
        _REBALANCE,
    ),
    Mutant(
        "balance-moves-again-at-once",
        "BA4",
        "reports measured before the moves were over are left out",
        (
            Edit(
                MeasuredLoads,
                "_fold",
                "report.measured_at_ms < self._held_until_ms.get(report.broker_id, 0)",
                "False",
            ),
        ),
        (*_LOADS, *_BALANCE),
    ),
    Mutant(
        "balance-without-grace",
        "DR6",
        "a unit that was moved stays for the grace",
        (Edit(Balance, "_burdens", "self._resting.keys() | ", ""),),
        _BALANCE,
    ),
    Mutant(
        "balance-believes-in-its-moves",
        "BA4",
        "a unit that stayed counts where it is",
        (Edit(BrokerMeasured, "settle", "if name in reported:", "if False:"),),
        (*_LOADS, *_BALANCE),
    ),
    Mutant(
        "balance-fills-the-overloaded",
        "BA5",
        "an overloaded broker gets nothing",
        (
            Edit(
                Balance,
                "_why_not",
                "measured.busy_permille >= 10 * settings.overloaded_percent",
                "False",
            ),
        ),
        _BALANCE,
    ),
    Mutant(
        "balance-fills-a-quarantine",
        "BA5",
        "a broker in quarantine gets nothing",
        (Edit(Balance, "_why_not", "not view.may_receive", "False"),),
        _BALANCE,
    ),
    Mutant(
        "balance-without-fresh-reports",
        "BA5",
        "a broker without a fresh report takes no part",
        (
            Edit(
                Balance,
                "_burdens",
                "measured.measured_at_ms < ended_ms - BALANCE_REPORT_AGE_MS_MAX",
                "False",
            ),
        ),
        _BALANCE,
    ),
    Mutant(
        "balance-moves-what-rules-bind",
        "BA5",
        "a unit that rules bind is not planned",
        (Edit(Balance, "_burden", "measured.named - measured.bound", "measured.named"),),
        _BALANCE,
    ),
    Mutant(
        "balance-of-any-number",
        "BA6",
        "what is no number, or negative, is ignored",
        (
            Edit(
                MeasuredLoads,
                "_why_refused",
                "if not all(map(math.isfinite, numbers)):",
                "if False:",
            ),
            Edit(MeasuredLoads, "_why_refused", "if min(numbers) < 0:", "if False:"),
        ),
        _LOADS,
    ),
    Mutant(
        "balance-of-the-future",
        "BA6",
        "a report of a clock that is far ahead is ignored",
        (
            Edit(
                MeasuredLoads,
                "_why_refused",
                "report.measured_at_ms > now_ms + BALANCE_REPORT_AHEAD_MS_MAX",
                "False",
            ),
        ),
        _LOADS,
    ),
    Mutant(
        "balance-beyond-the-budget",
        "BA7",
        "a plan ends at the budget of the whole cluster",
        (Edit(Balance, "_moves", "while left > 0 and", "while"),),
        _BALANCE,
    ),
    Mutant(
        "balance-parts-rounded-up",
        "BA7",
        "the parts of all shards add up to the shift",
        (Edit(balance, "part_of", "draw % units_all < rest", "rest > 0"),),
        (*_BALANCE, *_NODES),
    ),
)
