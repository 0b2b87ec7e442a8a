"""Which shards tell the names of a list: those that have their topics.

That is the shard with a name's slot, but for topics that were renamed: these stay in the shard that
they were created in, and it tells their names. Shards are followed each at its own pace. So when
one shard gives a name up and another gets it, both changes may come in either order: the name is in
the list as long as any shard tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Tellers:
    """The shards that tell each name of one list.

    ``shard_of`` is where a name's slot is, ``has`` whether the list has a name. Takes memory only
    for names that another shard than that of their slot tells.
    """

    def __init__(self, shard_of: Callable[[str], int], has: Callable[[str], bool]) -> None:
        self._shard_of = shard_of
        self._has = has
        self._tellers: dict[str, set[int]] = {}

    def __repr__(self) -> str:
        return f"<Tellers names={len(self)}>"

    def __len__(self) -> int:
        """Return how many names another shard than that of their slot tells."""
        return len(self._tellers)

    def is_told_by(self, name: str, shard_id: int) -> bool:
        """Return whether ``shard_id`` tells a name of the list."""
        tellers = self._tellers.get(name)
        return self._shard_of(name) == shard_id if tellers is None else shard_id in tellers

    def told(self, names: Iterable[str], shard_id: int) -> None:
        """Note that ``shard_id`` tells these names. Call it BEFORE they are added to the list."""
        for name in names:
            tellers = self._tellers.get(name)
            if tellers is not None:
                tellers.add(shard_id)
            elif (usual := self._shard_of(name)) != shard_id:
                self._tellers[name] = {usual, shard_id} if self._has(name) else {shard_id}

    def told_again(
        self, is_told: Callable[[str], bool], elsewhere: Iterable[str], shard_id: int
    ) -> None:
        """Note that ``shard_id``, read anew, tells the names of which ``is_told`` is true.

        Of those that have their slots at other shards it is asked for ``elsewhere``. Costs nothing
        for names that only this shard may tell.
        """
        self.told(filter(is_told, elsewhere), shard_id)
        self.told([*filter(is_told, self._tellers)], shard_id)

    def taken_away(self, names: Iterable[str], shard_id: int) -> list[str]:
        """Note that ``shard_id`` does not tell these names; return those that none tells any
        more."""
        gone: list[str] = []
        for name in names:
            tellers = self._tellers.get(name)
            if tellers is None:
                if self._shard_of(name) == shard_id:
                    gone.append(name)
                continue
            tellers.discard(shard_id)
            if not tellers:
                gone.append(name)
            if tellers <= {self._shard_of(name)}:
                del self._tellers[name]
        return gone

    def elsewhere(self, names: Iterable[str], shard_id: int) -> list[str]:
        """Return those of ``names`` whose slots are not in ``shard_id``."""
        return [name for name in names if self._shard_of(name) != shard_id]
