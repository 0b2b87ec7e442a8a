"""The ``View`` port on the view store."""

from __future__ import annotations

from pathlib import Path

from cluster_manager.domain.cluster import ClusterState
from cluster_manager.projections.fold import fold_entries
from cluster_manager.projections.tables import METADATA, load_state
from nextgen.replication.view_store import ViewStore


def open_view_store(directory: Path) -> ViewStore:
    """Return the state machine that folds group 0's log into tables in ``directory``."""
    return ViewStore(directory, METADATA, fold_entries)


class StoredView:
    """Reads the tables back."""

    def __init__(self, store: ViewStore) -> None:
        self._store = store

    def load(self) -> tuple[ClusterState, int]:
        """See ``View.load``."""
        # Asked first: entries that are applied in between are folded a second time by the
        # caller, which changes nothing, because every event says how things are after it.
        index = self._store.applied().index
        with self._store.read_transaction() as connection:
            return load_state(connection), index
