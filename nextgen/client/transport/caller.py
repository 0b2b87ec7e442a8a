"""The principal of a gRPC call: ``ClientGate`` sets it, the servicer of the call reads it."""

from __future__ import annotations

from contextvars import ContextVar

from nextgen.kernel.governance.access import ANONYMOUS, Principal

OPERATOR = Principal("")
"""The holder of an operator's certificate, who is not asked for permissions. No role is empty."""

_caller: ContextVar[Principal] = ContextVar("caller", default=ANONYMOUS)


def caller() -> Principal:
    """Return the identity of the client whose call the present task serves."""
    return _caller.get()


def set_caller(principal: Principal) -> None:
    """Note whose call the present task serves."""
    _caller.set(principal)
