"""Finds the route of a request: a tree with one level for each part of a path.

A literal part goes before a variable. The parts are matched before they are decoded, so that an
encoded slash does not separate parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from discovery.adapters.rest.request import decoded
from discovery.adapters.rest.route import VARIABLES, Route

_NONE: Mapping[str, Route] = {}


@dataclass(slots=True)
class _Node:
    literal: dict[str, _Node] = field(default_factory=dict)
    variable: _Node | None = None
    routes: dict[str, Route] = field(default_factory=dict)


class RouteTable:
    """All routes. A path with a method is served by one route at most."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            for leaf in _leaves(self._root, route.parts):
                assert route.method not in leaf.routes, (
                    f"{route.method} {route.path} is there twice"
                )
                leaf.routes[route.method] = route

    def find(self, path: str) -> tuple[Mapping[str, Route], Sequence[str]]:
        """Return the routes of ``path`` by method, none if it is unknown, and its parts."""
        parts = path.split("/")[1:]
        if parts and not parts[-1]:  # One slash at the end means nothing.
            parts.pop()
        return _find(self._root, parts, 0), parts


def variables(route: Route, parts: Sequence[str]) -> dict[str, str]:
    """Return the variables of a path that ``route`` serves, decoded.

    Raises:
        RestFailure: 412, one is not UTF-8.
    """
    return {name: decoded(parts[place]) for name, place in route.variables.items()}


def _leaves(root: _Node, parts: Sequence[str]) -> list[_Node]:
    """Return where a route's path ends: several places if it has a variable of few values."""
    nodes = [root]
    for part in parts:
        if not part.startswith("{"):
            nodes = [node.literal.setdefault(part, _Node()) for node in nodes]
        elif values := VARIABLES.get(part[1:-1], {}).get("enum"):
            nodes = [node.literal.setdefault(each, _Node()) for node in nodes for each in values]
        else:
            for node in nodes:
                node.variable = node.variable or _Node()
            nodes = [node.variable for node in nodes if node.variable is not None]
    return nodes


def _find(node: _Node, parts: Sequence[str], place: int) -> Mapping[str, Route]:
    if place == len(parts):
        return node.routes
    part = parts[place]
    following = node.literal.get(part)
    if following is not None and (found := _find(following, parts, place + 1)):
        return found
    if node.variable is not None and part:
        return _find(node.variable, parts, place + 1)
    return _NONE
