"""Checks that an operator's command carries out on a cluster of its own, when it has no target.

The harness registers them; where it is not installed, the command's error says how to get it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nextgen.cli.console.install_hint import install_hint
from nextgen.kernel.errors import RefusesToStart

_BROUGHT: dict[str, Callable[..., Any]] = {}
"""Registered checks by the command that uses them."""


def bring_check(command: str, check: Callable[..., Any]) -> None:
    """Have ``command`` use ``check`` without a target."""
    _BROUGHT[command] = check


def check_of(command: str) -> Callable[..., Any]:
    """Return the check of ``command`` for use without a target.

    Raises:
        RefusesToStart: None is registered.
    """
    if command not in _BROUGHT:
        raise RefusesToStart(
            f"'{command}' without --target needs the harness: {install_hint('harness')}"
        )
    return _BROUGHT[command]
