"""The tokens of a local cluster: its secret key, and the token of its operator."""

from __future__ import annotations

import os
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.security.authentication.token_keys import secret_bytes
from nextgen.runtime.security.authentication.token_maker import make_token
from nextgen.runtime.security.private_file import write_private

KEY_FILE = "token-secret.key"
TOKEN_FILE = "admin.token"
OPERATOR_ROLE = "admin"
TOKENS = "token"
"""How clients of a cluster prove their role; "" if they do not."""

_ALGORITHM = "HS256"


def make_tokens(data_dir: Path) -> None:
    """Make the key and the operator's token in the data directory, unless they are there.

    Raises:
        RefusesToStart: A file cannot be read or written.
    """
    key = data_dir / KEY_FILE
    if not key.exists():
        write_private(key, os.urandom(secret_bytes(_ALGORITHM)))
        # A token of another key is of no use.
        (data_dir / TOKEN_FILE).unlink(missing_ok=True)
    if not (data_dir / TOKEN_FILE).exists():
        try:
            secret = key.read_bytes()
        except OSError as error:
            raise RefusesToStart(f"{key} cannot be read: {error.strerror or error}") from error
        token = make_token(secret, _ALGORITHM, {"sub": OPERATOR_ROLE})
        write_private(data_dir / TOKEN_FILE, token.encode() + b"\n")


def token_flags(data_dir: Path, *, authorization: bool) -> dict[str, str]:
    """Return the flags of processes that clients of the cluster connect to.

    ``authorization``: whether roles need permissions, all but the operator's.
    """
    permissions = {"--authorization-enabled": "true", "--super-user-roles": OPERATOR_ROLE}
    return {
        **(permissions if authorization else {}),
        "--authentication-enabled": "true",
        "--authentication-providers": "token",
        "--token-secret-key": (data_dir / KEY_FILE).absolute().as_uri(),
    }
