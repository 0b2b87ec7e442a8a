"""Histories: the recorded requests and answers of clients, and `check(history)`, which judges them.
Checks do not depend on the recorder: `model` defines the records, `log_events` reads the wire.
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
