"""One export's directory: its owner, its content, and how a file is added.

    draft written and synced  →  renamed, folder synced  →  manifest replaced

A kill between any two steps leaves drafts, and at most one file per shard that the manifest does
not name. That file begins where the shard's export ends, so the next run recognises and removes
it. Any other unnamed file is foreign, and the directory is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nextgen.export.errors import ExportRefused, ExportStopped, WrongExport
from nextgen.export.format.manifest import (
    ExportFile,
    Gap,
    Manifest,
    ShardExported,
    decode_manifest,
    encode_manifest,
)
from nextgen.export.stores.layout import MANIFEST, Kind, data_name, kind_of
from nextgen.export.stores.store import Draft, Store, StoredFile
from nextgen.kernel.limits.stream import EXPORT_FILES_MAX

NAMED_MAX = 5
"""Files that one refusal names at most."""


class ExportDirectory:
    """An export that this process alone writes. Open it with ``open_for_writing``.

    Methods block, and may be called by several threads.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.store = store
        self._manifest = manifest
        self._changing = threading.Lock()

    def __repr__(self) -> str:
        return f"<ExportDirectory {self.store.url} generation={self._manifest.generation}>"

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    @classmethod
    def open_for_writing(cls, store: Store, *, cluster_id: str = "") -> ExportDirectory:
        """Lock the directory, create it on first use, remove the leftovers of a killed run.

        ``cluster_id`` is empty if it is not known.

        Raises:
            ExportRefused: It is in use, has foreign files, or lacks files that the manifest names.
                Nothing was changed.
            WrongExport: It holds another cluster's log. Nothing was changed.
            ExportStopped: The disk refuses.
        """
        with disk_errors(store):
            # Check before the lock is made, so that a refusal changes nothing.
            _check_ours(store, cluster_id)
            store.acquire()
            try:
                # Check again under the lock: another exporter may have written until then.
                manifest, files = _check_ours(store, cluster_id)
                for path in _leftovers(store, manifest, files):
                    store.remove(path)
                wanted = manifest or Manifest(cluster_id, f"export-{secrets.token_hex(8)}")
                if cluster_id and not wanted.cluster_id:
                    wanted = replace(wanted, cluster_id=cluster_id)
                if wanted != manifest:
                    wanted = replace(wanted, generation=wanted.generation + 1)
                    store.replace(MANIFEST, encode_manifest(wanted))
            except BaseException:
                store.release()
                raise
        return cls(store, wanted)

    def close(self) -> None:
        """Release the lock. Harmless when closed already."""
        with contextlib.suppress(OSError):
            self.store.release()

    def publish(self, draft: Draft, shard_id: int, file: ExportFile, last_event: Any) -> None:
        """Rename a complete draft, then add it to the manifest.

        Raises:
            ExportRefused: The manifest is full, or another exporter took over.
            OSError: The disk refuses. The export is unchanged.
        """
        with self._changing:
            shard = self._manifest.shard(shard_id)
            assert file.first_position == shard.position + 1, "files of a shard leave no hole"
            if self._manifest.file_count >= EXPORT_FILES_MAX:
                raise ExportRefused(
                    f"{self.store.url} has {EXPORT_FILES_MAX} files, as many as a manifest names: "
                    "export to another directory, with larger files"
                )
            draft.publish(file.path)
            self._replace(
                shard_id,
                replace(
                    shard,
                    position=file.last_position,
                    last_event_sha256=event_digest(last_event),
                    files=(*shard.files, file),
                ),
            )

    def accept_gap(self, shard_id: int, last_position: int) -> None:
        """Record a gap: the shard's export continues behind ``last_position``.

        Raises:
            OSError: The disk refuses.
        """
        with self._changing:
            shard = self._manifest.shard(shard_id)
            gap = Gap(shard.position + 1, last_position)
            self._replace(
                shard_id,
                replace(
                    shard,
                    position=last_position,
                    last_event_sha256="",
                    accepted_gaps=(*shard.accepted_gaps, gap),
                ),
            )

    def _replace(self, shard_id: int, shard: ShardExported) -> None:
        manifest = self._manifest.with_shard(shard_id, shard)
        self.store.replace(MANIFEST, encode_manifest(manifest))
        self._manifest = manifest


def event_digest(event: Any) -> str:
    """Return the digest of one event: equal only for equal events."""
    return hashlib.sha256(event.SerializeToString(deterministic=True)).hexdigest()


def load_manifest(store: Store) -> Manifest | None:
    """Return the manifest, None if there is none.

    Raises:
        ExportRefused: It is not a manifest that this release can read.
        ExportStopped: The disk refuses.
    """
    with disk_errors(store):
        content = store.read(MANIFEST)
    if content is None:
        return None
    return decode_manifest(content, f"{store.url}/{MANIFEST}")


def read_manifest(store: Store) -> Manifest:
    """Return the manifest.

    Raises:
        ExportRefused: There is no export, or not one that this release can read.
        ExportStopped: The disk refuses.
    """
    manifest = load_manifest(store)
    if manifest is None:
        raise ExportRefused(f"{store.url} holds no export: there is no {MANIFEST}")
    return manifest


@contextlib.contextmanager
def disk_errors(store: Store) -> Any:
    """Turn errors of the disk into ``ExportStopped``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ExportStopped(
            f"{store.url} cannot be written or read ({reason}): files in the manifest are whole; "
            "repair the disk and run the export again, it continues where it stopped"
        ) from error


def shown_names(names: Sequence[str]) -> str:
    """Return ``names`` for a refusal: the first few, and the number of the others."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _check_ours(store: Store, cluster_id: str) -> tuple[Manifest | None, list[StoredFile]]:
    """Return the manifest, and the data files and drafts in the directory."""
    manifest = load_manifest(store)
    files = store.list()
    foreign = [file.path for file in files if kind_of(file.path) is Kind.FOREIGN]
    if foreign:
        raise ExportRefused(
            f"{store.url} holds files that are not of an export: {shown_names(foreign)}. "
            "Export to an empty directory, or move them away"
        )
    ours = [file for file in files if kind_of(file.path) in (Kind.DATA, Kind.DRAFT)]
    if manifest is None:
        if ours:
            raise ExportRefused(
                f"{store.url} holds {shown_names([file.path for file in ours])} but no {MANIFEST}: "
                "restore the manifest from a copy, or export to an empty directory"
            )
        return None, []
    if cluster_id and manifest.cluster_id not in ("", cluster_id):
        raise WrongExport(
            f"{store.url} holds the events of cluster {manifest.cluster_id!r}, this is "
            f"{cluster_id!r}: export to another directory"
        )
    return manifest, ours


def _check_present(store: Store, manifest: Manifest, files: Sequence[StoredFile]) -> None:
    bytes_of = {file.path: file.bytes for file in files}
    wrong = [
        f"{file.path} ({_size(bytes_of.get(file.path))}, the manifest says {file.bytes} bytes)"
        for shard in manifest.shards.values()
        for file in shard.files
        if bytes_of.get(file.path) != file.bytes
    ]
    if wrong:
        raise ExportRefused(
            f"{store.url} is damaged: {shown_names(wrong)}. Restore the files from a copy, or "
            "export to an empty directory; 'nextgen export check' reads all of them"
        )


def _leftovers(store: Store, manifest: Manifest | None, files: Sequence[StoredFile]) -> list[str]:
    """Return the files that a killed run left; raise ExportRefused if there are foreign ones."""
    if manifest is None:
        return []
    _check_present(store, manifest, files)
    named = manifest.paths
    left, strange = [], []
    for file in files:
        if file.path in named:
            continue
        name = data_name(file.path)
        if name is None or name.first_position == manifest.shard(name.shard_id).position + 1:
            left.append(file.path)
        else:
            strange.append(file.path)
    if strange:
        raise ExportRefused(
            f"{store.url} holds files that its manifest does not name, and that no run of this "
            f"export left: {shown_names(strange)}. Move them away"
        )
    return left


def _size(size_bytes: int | None) -> str:
    return "missing" if size_bytes is None else f"{size_bytes} bytes"
