"""What every pipeline's plan must keep to: no rows through Python but keys on their way to slots.

Python's operators have names of their own in a plan: ``ArrowEvalPython [slots_of(key#1)#2], …``.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

UNWANTED = ("InPandas", "InArrow", "CartesianProduct", "NestedLoopJoin")

_OF_PYTHON = re.compile(r"[\s:+*()\d-]*\w*Python")
"""A line's operator. A scan of a Python data source names it at its end."""

_OF_SLOTS = re.compile(r"ArrowEvalPython \[slots_of\(.*\)#\d+\], \[\w+#\d+\], \d+$")
"""Of one function: the second list names the one column that the operator adds."""


def plan_of(frame: DataFrame) -> str:
    """Return the text of the plan that Spark would execute."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def unwanted_in(plan: str, hashes: int = 0) -> list[str]:
    """Return what must not be in ``plan``: nothing, if keys are hashed in ``hashes`` places of it.

    Any other function of Python, and a place too many or too few, is in the answer (ADR 0042).
    """
    in_python = [operator for operator in plan.splitlines() if _OF_PYTHON.match(operator)]
    hashing = [operator for operator in in_python if _OF_SLOTS.search(operator)]
    found = [word for word in UNWANTED if word in plan]
    found += [operator for operator in in_python if operator not in hashing]
    return found if len(hashing) == hashes else [*found, f"{len(hashing)} places hash keys"]
