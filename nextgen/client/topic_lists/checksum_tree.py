"""A binary tree over the parts of a text: one changed part costs a path to the root, not all parts.

Parts that were inserted or removed shift the others, so the tree is made anew then. Nothing is
computed before the whole is asked for.
"""

from __future__ import annotations

from nextgen.client.topic_lists.checksum import EMPTY, Part, joined


class ChecksumTree:
    """The parts of one text, in order."""

    __slots__ = ("_changed", "_nodes", "_parts", "_width")

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._nodes: list[Part] = []
        """The root is at 1, the children of ``n`` at ``2n`` and ``2n + 1``, the parts last."""
        self._width = 0
        """Parts that the tree has room for; 0: it has to be made anew."""
        self._changed: set[int] = set()

    def __len__(self) -> int:
        return len(self._parts)

    def replace(self, index: int, part: Part) -> None:
        if self._parts[index] != part:
            self._parts[index] = part
            self._changed.add(index)

    def insert(self, index: int, part: Part) -> None:
        self._parts.insert(index, part)
        self._width = 0

    def remove(self, index: int) -> None:
        del self._parts[index]
        self._width = 0

    def cut(self, index: int) -> list[Part]:
        """Remove and return the parts from ``index`` on."""
        taken = self._parts[index:]
        del self._parts[index:]
        self._width = 0
        return taken

    def whole(self) -> Part:
        """Return the part that all of them are, joined."""
        if not self._parts:
            return EMPTY
        if not self._width:
            self._make()
        elif self._changed:
            self._update()
        self._changed.clear()
        return self._nodes[1]

    def _make(self) -> None:
        width = 1 << (len(self._parts) - 1).bit_length()
        nodes = [EMPTY] * (2 * width)
        nodes[width : width + len(self._parts)] = self._parts
        for node in range(width - 1, 0, -1):
            nodes[node] = joined(nodes[2 * node], nodes[2 * node + 1])
        self._nodes, self._width = nodes, width

    def _update(self) -> None:
        nodes = self._nodes
        level = {index + self._width for index in self._changed}
        for node in level:
            nodes[node] = self._parts[node - self._width]
        while 1 not in level:
            level = {node >> 1 for node in level}
            for node in level:
                nodes[node] = joined(nodes[2 * node], nodes[2 * node + 1])
