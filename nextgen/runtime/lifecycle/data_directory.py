"""A process's data directory: its identity, and the lock that keeps other processes out.

    identity.json   cluster, node and component; written once, before anything else
    lock            held (flock) by the process that uses the directory

A directory is adopted only while it is empty. A directory of another node, or with data but no
identity, is refused, and nothing in it is changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart, WrongCluster
from nextgen.kernel.input.json_fields import parse_json

IDENTITY_FILE = "identity.json"
LOCK_FILE = "lock"
_IDENTITY_DRAFT = ".identity.json.draft"
_NOT_DATA = frozenset({LOCK_FILE, "lost+found", "logs"})
_NOT_DATA_SUFFIXES = frozenset({".log", ".pid"})


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a data directory: cluster, node and component."""

    cluster_id: str
    node_id: str
    component: str


class DataDirectory:
    """An open data directory. Open it with ``DataDirectory.open``, close it at the end."""

    def __init__(self, path: Path, identity: Identity, lock: int) -> None:
        self.path = path
        self.identity = identity
        self._lock = lock

    def __repr__(self) -> str:
        status = "closed" if self._lock < 0 else "open"
        return f"<DataDirectory {self.path} of {self.identity.node_id} {status}>"

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @classmethod
    def open(
        cls, path: Path | str, *, cluster_id: str, node_id: str, component: str
    ) -> DataDirectory:
        """Open the directory for one process, making it on first use.

        Raises:
            WrongCluster: It belongs to another cluster, node or component.
            RefusesToStart: It is in use, cannot be used, or holds data without an identity.
        """
        directory = Path(path).absolute()
        identity = Identity(cluster_id, node_id, component)
        try:
            # Checked before the lock file is made: a refusal changes nothing.
            _check_owner(directory, identity)
            _make_directory(directory)
            lock = _acquire_lock(directory)
            try:
                # Again under the lock: two first starts may have raced to here.
                if not _check_owner(directory, identity):
                    _write_identity(directory, identity)
            except BaseException:
                os.close(lock)
                raise
        except OSError as error:
            raise RefusesToStart(
                f"data directory {directory} cannot be used ({error.strerror}): "
                "check that it exists on a healthy disk and belongs to this user"
            ) from error
        return cls(directory, identity, lock)

    def close(self) -> None:
        """Let another process use the directory. Harmless when closed already."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def identity_of(path: Path | str) -> Identity:
    """Return the identity of a data directory.

    Raises:
        RefusesToStart: It has no identity, or its identity cannot be read.
    """
    directory = Path(path).absolute()
    try:
        content = (directory / IDENTITY_FILE).read_bytes()
    except OSError as error:
        raise RefusesToStart(f"{directory} is not the data directory of a node") from error
    return _parse_identity(directory, content)


def _check_owner(directory: Path, wanted: Identity) -> bool:
    """Return whether ``directory`` has the wanted identity; False if it has none and is empty."""
    try:
        content = (directory / IDENTITY_FILE).read_bytes()
    except FileNotFoundError:
        _check_empty(directory)
        return False
    found = _parse_identity(directory, content)
    if found == wanted:
        return True
    raise WrongCluster(
        f"data directory {directory} belongs to {_described(found)}, "
        f"this process is {_described(wanted)}: "
        "give this process its own directory, or start it with the identity of that one"
    )


def _check_empty(directory: Path) -> None:
    if not directory.exists():
        return
    for child in sorted(directory.iterdir()):
        if not _is_harmless(child):
            raise RefusesToStart(
                f"data directory {directory} holds {child.name} but no {IDENTITY_FILE}: "
                "use an empty directory, or restore the identity file from a backup"
            )


def _is_harmless(child: Path) -> bool:
    hidden = child.name.startswith(".")
    return hidden or child.name in _NOT_DATA or child.suffix in _NOT_DATA_SUFFIXES


def _parse_identity(directory: Path, content: bytes) -> Identity:
    try:
        fields = parse_json(content)
        return Identity(str(fields["cluster_id"]), str(fields["node_id"]), str(fields["component"]))
    except (ValueError, KeyError, TypeError) as error:
        raise RefusesToStart(
            f"{directory / IDENTITY_FILE} is damaged: restore it from a backup, "
            "or move the directory away and let this node be rebuilt from its peers"
        ) from error


def _described(identity: Identity) -> str:
    return f"{identity.component} {identity.node_id!r} of cluster {identity.cluster_id!r}"


def _make_directory(directory: Path) -> None:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        _sync_directory(path.parent)


def _acquire_lock(directory: Path) -> int:
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise RefusesToStart(
            f"data directory {directory} is in use by process {owner}: "
            "stop that process, or give this one a directory of its own"
        ) from None
    # For the error message of a second process; a full disk must not prevent the start.
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0)
    return lock


def _write_identity(directory: Path, identity: Identity) -> None:
    draft = directory / _IDENTITY_DRAFT
    with draft.open("w", encoding="utf-8") as file:
        json.dump(asdict(identity), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / IDENTITY_FILE)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
