"""What happened, as its clients saw it, and the checks that judge it. Pure but for its files.

    model           what a history is made of, and HOW TO RECORD ONE
    record_file     histories on disk
    check           check(history) -> Verdict

Knows nothing of how a history was made: by a real cluster, a simulated one, or a test.
"""

from nextgen.history.check import check
from nextgen.history.model import History
from nextgen.history.record_file import BadHistory, Recorder, load_history
from nextgen.history.verdict import Finding, FindingKind, Verdict

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
