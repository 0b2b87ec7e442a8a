"""The cluster secret, shared by the processes of one cluster and its operators (ADR 0057).

A file with one secret. Whitespace around it is ignored, so an editor's newline is harmless.

    python -m nextgen.runtime.security.cluster_secret FILE      makes FILE unless it is there
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path

import structlog

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import CLUSTER_SECRET_BYTES_MAX, CLUSTER_SECRET_BYTES_MIN
from nextgen.runtime.lifecycle.exit_code import ExitCode

SECRET_FILE = "cluster.secret"
"""Its name in the data directory of ``nextgen up``."""

_RANDOM_BYTES = 32

_logger = structlog.get_logger(__name__)


def load_cluster_secret(path: Path | None) -> bytes | None:
    """Return the secret in the file, None without a file.

    A file that other users than its owner and group can read is used, with a warning in the log.

    Raises:
        RefusesToStart: The file cannot be read, or its secret is too short or too long.
    """
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(CLUSTER_SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise RefusesToStart(
            f"the cluster secret cannot be read from {path}: {error.strerror or error}"
        ) from error
    secret = content.strip()
    if len(content) > CLUSTER_SECRET_BYTES_MAX:
        raise RefusesToStart(
            f"{path} has more than {CLUSTER_SECRET_BYTES_MAX} bytes: it is no cluster secret"
        )
    if len(secret) < CLUSTER_SECRET_BYTES_MIN:
        raise RefusesToStart(
            f"the cluster secret in {path} has {len(secret)} bytes, "
            f"at least {CLUSTER_SECRET_BYTES_MIN} are required"
        )
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        _logger.warning(
            "every user of this machine can read or change the cluster secret: chmod 600",
            file=str(path),
        )
    return secret


def make_cluster_secret(path: Path) -> bool:
    """Make the file with a random secret that only its owner can read; return whether it was made.

    An existing file is not changed. If several processes make it at once, one wins, and no reader
    ever finds a partial secret.

    Raises:
        RefusesToStart: The file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.draft")
    try:
        if path.exists():
            return False
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_hex(_RANDOM_BYTES).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            # Unlike a rename, a link never replaces the file that another process made.
            os.link(draft, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()
    except FileExistsError:
        return False
    except OSError as error:
        raise RefusesToStart(
            f"the cluster secret cannot be written to {path}: {error.strerror or error}"
        ) from error
    return True


def main() -> None:
    """Make the file that the only argument names."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m nextgen.runtime.security.cluster_secret FILE\n")
        sys.exit(ExitCode.USAGE)
    try:
        was_made = make_cluster_secret(Path(sys.argv[1]))
        load_cluster_secret(Path(sys.argv[1]))
    except RefusesToStart as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(ExitCode.CANNOT_RUN)
    sys.stdout.write(f"{sys.argv[1]} {'was made' if was_made else 'is there already'}\n")


if __name__ == "__main__":
    main()
