"""The token with which this process proves its role as a client: the command line and its children.

It is read anew whenever it is used, so a new token in the file takes effect without a restart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import AUTH_DATA_BYTES_MAX

TOKEN_VARIABLE = "NEXTGEN_TOKEN"
TOKEN_FILE_VARIABLE = "NEXTGEN_TOKEN_FILE"
METHOD = "token"

_of_cluster: Path | None = None


def use_token_file(file: Path | None) -> None:
    """Use the token in ``file`` where the environment names none: that of the local cluster."""
    global _of_cluster
    _of_cluster = file


def token_in_use(environment: Mapping[str, str] | None = None) -> str:
    """Return the token of the environment, or else of the local cluster; empty without one.

    Raises:
        RefusesToStart: Its file cannot be read, or holds no token.
    """
    given = os.environ if environment is None else environment
    if token := given.get(TOKEN_VARIABLE, "").strip():
        return checked_token(token, TOKEN_VARIABLE)
    if named := given.get(TOKEN_FILE_VARIABLE, ""):
        return read_token(Path(named))
    return "" if _of_cluster is None else read_token(_of_cluster)


def environment_with_token(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` for a child process that shall use the same token."""
    passed = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    if not passed and _of_cluster is not None:
        passed = {TOKEN_FILE_VARIABLE: str(_of_cluster)}
    return {**environment, **passed}


_VARIABLES = (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE)


def read_token(file: Path) -> str:
    """Return the token in a file.

    Raises:
        RefusesToStart: It cannot be read, or holds no token.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(AUTH_DATA_BYTES_MAX + 1)
    except OSError as error:
        raise RefusesToStart(
            f"the token cannot be read from {file}: {error.strerror or error}"
        ) from error
    return checked_token(content.decode("ascii", "replace").strip(), str(file))


def checked_token(token: str, where: str) -> str:
    """Return a token that is fit for a header. Errors name ``where`` it is from, and not the token.

    Raises:
        RefusesToStart: It is none.
    """
    # It becomes a header of gRPC and HTTP: a line break would begin another one.
    is_token = len(token) <= AUTH_DATA_BYTES_MAX and token.isascii() and token.isprintable()
    if not token or not is_token or " " in token:
        raise RefusesToStart(f"{where} holds no token")
    return token
