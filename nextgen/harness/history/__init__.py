"""What clients asked, saw and recorded, and `check(history)`, which gives the verdict. It knows
nothing of how a history was made: `model` says how to record one, `log_events` reads the wire.
The load, chaos, tests and `nextgen history` call it.
"""

from nextgen.audit.verdict import Finding, FindingKind, Verdict
from nextgen.harness.history.check import check
from nextgen.harness.history.model import History
from nextgen.harness.history.record_file import BadHistory, Recorder, load_history

__all__ = [
    "BadHistory",
    "Finding",
    "FindingKind",
    "History",
    "Recorder",
    "Verdict",
    "check",
    "load_history",
]
