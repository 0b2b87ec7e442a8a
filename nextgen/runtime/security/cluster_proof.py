"""Proofs of the cluster secret: made by the caller, checked by the called process (ADR 0057).

    proof = challenge (16 bytes) ‖ nonce (16) ‖ HMAC-SHA256(secret, purpose, cluster, method, both)

The secret never travels. A proof holds for one method of one cluster, at the process that made the
challenge, once. No clock is part of it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.security.client_token import environment_with_token
from nextgen.runtime.security.cluster_secret import load_cluster_secret
from nextgen.runtime.security.process_tls import tls_environment_of_child

PROOF_KEY = "nextgen-proof-bin"
"""The metadata key of a call's proof."""

CHALLENGE_BYTES = 16
NONCE_BYTES = 16

CHALLENGE_ENDED = "the proof is for a challenge that has ended: connect again"
"""The refusal of a valid proof that comes too late, or to another process than its own."""

SECRET_FILE_VARIABLE = "NEXTGEN_CLUSTER_SECRET_FILE"
CLUSTER_ID_VARIABLE = "NEXTGEN_CLUSTER_ID"

_PURPOSE = b"pulsar-nextgen gRPC call 1"
_CODE_BYTES = hashlib.sha256().digest_size

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof with a correct code. Valid if its challenge is, and its nonce was not used before."""

    challenge: bytes
    nonce: bytes


@dataclass(frozen=True, slots=True)
class ClusterCredentials:
    """The secret of one cluster, and the file that it was read from."""

    cluster_id: str
    secret: bytes = field(repr=False)
    file: Path

    @staticmethod
    def load(cluster_id: str, file: Path | None) -> ClusterCredentials | None:
        """Return the credentials in ``file``, None without a file.

        Raises:
            RefusesToStart: The file cannot be read, or holds no valid secret.
        """
        secret = load_cluster_secret(file)
        if file is None or secret is None:
            return None
        return ClusterCredentials(cluster_id, secret, file.absolute())

    def prove(self, method: str, challenge: bytes) -> bytes:
        """Return a new proof for one call of ``method``, which is the path of a gRPC method."""
        nonce = os.urandom(NONCE_BYTES)
        return challenge + nonce + self._code(method, challenge, nonce)

    def checked(self, method: str, proof: bytes) -> Proof | None:
        """Return the proof if it was made with this secret, for this cluster and this method."""
        if len(proof) != CHALLENGE_BYTES + NONCE_BYTES + _CODE_BYTES:
            return None
        challenge = proof[:CHALLENGE_BYTES]
        nonce = proof[CHALLENGE_BYTES : CHALLENGE_BYTES + NONCE_BYTES]
        code = proof[-_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(method, challenge, nonce)):
            return None
        return Proof(challenge, nonce)

    def environment(self) -> dict[str, str]:
        """Return the variables by which a child process finds these credentials."""
        return {CLUSTER_ID_VARIABLE: self.cluster_id, SECRET_FILE_VARIABLE: str(self.file)}

    def _code(self, method: str, challenge: bytes, nonce: bytes) -> bytes:
        # The two fields of variable length are delimited, so that no two inputs are equal bytes.
        parts = (_PURPOSE, self.cluster_id.encode(), method.encode(), challenge + nonce)
        return hmac.digest(self.secret, b"\0".join(parts), "sha256")


_in_use: ClusterCredentials | None = None


def use_credentials(credentials: ClusterCredentials | None) -> None:
    """Make every channel that this process opens from here on carry proofs of ``credentials``.

    A process belongs to one cluster, or works for one at a time. None: no proofs.
    """
    global _in_use
    _in_use = credentials


def credentials_in_use() -> ClusterCredentials | None:
    """Return the last argument of ``use_credentials``."""
    return _in_use


def credentials_of_node(
    cluster_id: str, file: Path | None, *, has_tls: bool = False
) -> ClusterCredentials | None:
    """Return the credentials of a process of the cluster and use them; None without a file.

    ``has_tls``: certificates take the place of the secret.

    Raises:
        RefusesToStart: As ``ClusterCredentials.load``.
    """
    credentials = ClusterCredentials.load(cluster_id, file)
    if credentials is None and not has_tls:
        _logger.warning(
            "no cluster secret: any program that reaches this process can act as a member of the "
            "cluster; see --cluster-secret-file"
        )
    use_credentials(credentials)
    return credentials


def environment_of_child(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` for a child process with the same secrets, token and certificates."""
    credentials = {} if _in_use is None else _in_use.environment()
    return {**environment_with_token(environment), **credentials, **tls_environment_of_child()}


def credentials_of_environment(environment: Mapping[str, str]) -> ClusterCredentials | None:
    """Return the credentials that the environment names, None if it names no file.

    Raises:
        RefusesToStart: It does not name the cluster, or as ``ClusterCredentials.load``.
    """
    file = environment.get(SECRET_FILE_VARIABLE)
    if not file:
        return None
    cluster_id = environment.get(CLUSTER_ID_VARIABLE)
    if not cluster_id:
        raise RefusesToStart(
            f"the cluster secret in {file} is of no use without the cluster's id: "
            f"give it with --cluster-id or {CLUSTER_ID_VARIABLE}"
        )
    return ClusterCredentials.load(cluster_id, Path(file))
