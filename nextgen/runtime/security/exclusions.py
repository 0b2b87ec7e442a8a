"""Nodes that the cluster manager has excluded: no process of the cluster accepts them any more.

The cluster manager pushes the list with the rest of what it knows of the cluster (ADR 0145). An
exclusion is for ever, as node ids are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_names: frozenset[str] = frozenset()
_listeners: list[Callable[[frozenset[str]], None]] = []


def excluded() -> frozenset[str]:
    """Return the node ids that are excluded, as far as this process knows."""
    return _names


def set_excluded(names: Iterable[str]) -> None:
    """Take the whole list that the cluster manager sent; tell the listeners what is new."""
    global _names
    before, _names = _names, frozenset(names)
    new = _names - before
    if new:
        for listener in tuple(_listeners):
            listener(new)


def on_excluded(listener: Callable[[frozenset[str]], None]) -> Callable[[], None]:
    """Call ``listener`` with the names that are new on the list; return what ends that."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)
