"""Admits calls between processes only with proof of the cluster secret (ADR 0057)."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
import structlog
from prometheus_client import Counter

from nextgen.client.transport.node_calls import GET_CHALLENGE, OPEN_CALLS
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import MetadataError, Unauthenticated, Unavailable
from nextgen.kernel.limits.inbound import (
    CHALLENGE_PERIOD_MS,
    CHALLENGE_PROOFS_MAX,
)
from nextgen.runtime.security.cluster_proof import (
    CHALLENGE_BYTES,
    CHALLENGE_ENDED,
    PROOF_KEY,
    ClusterCredentials,
    Proof,
)
from protos.nextgen.v1.peer_service_pb2 import GetChallengeResponse

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    # Generic in its stubs only.
    _Interceptor = grpc.aio.ServerInterceptor

Clock = Callable[[], float]
"""Returns seconds of a monotonic clock."""

_Handler = Any
_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]]

_unproven = Counter(
    "nextgen_calls_without_proof",
    "Calls between processes that came without proof of the cluster secret.",
    ["outcome"],
)
for _outcome in ("refused", "taken"):
    _unproven.labels(_outcome)  # Exported as 0 before the first.
_logger = structlog.get_logger(__name__)


class Challenges:
    """The current and the previous challenge of one server, and the proofs used for them."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._made_at = clock()
        self._present = os.urandom(CHALLENGE_BYTES)
        self._taken: dict[bytes, set[bytes]] = {self._present: set()}
        """By challenge, the older first: the nonces of the accepted proofs."""

    def present(self) -> bytes:
        """Return the challenge for which callers make their proofs."""
        age_ms = (self._clock() - self._made_at) * 1_000
        if age_ms >= CHALLENGE_PERIOD_MS:
            if age_ms >= 2 * CHALLENGE_PERIOD_MS:
                self._taken.clear()
            self._begin_next()
        return self._present

    def take(self, proof: Proof) -> bool:
        """Accept the proof and return True if its challenge is valid and its nonce is unused."""
        self.present()
        nonces = self._taken.get(proof.challenge)
        if nonces is None or proof.nonce in nonces:
            return False
        nonces.add(proof.nonce)
        if len(self._taken[self._present]) >= CHALLENGE_PROOFS_MAX:
            self._begin_next()
        return True

    def _begin_next(self) -> None:
        while len(self._taken) > 1:
            del self._taken[next(iter(self._taken))]
        self._made_at = self._clock()
        self._present = os.urandom(CHALLENGE_BYTES)
        self._taken[self._present] = set()


class MemberGate(_Interceptor):
    """Refuses a call that needs proof and has none, before its request is read.

    Without ``credentials`` every call is admitted. Unless proof ``is_required``, calls without it
    are admitted too, and counted: for the time in which a secret is introduced or changed.
    """

    def __init__(
        self,
        credentials: ClusterCredentials | None,
        *,
        is_required: bool = True,
        clock: Clock = time.monotonic,
    ) -> None:
        self._credentials = credentials
        self._is_required = is_required
        self._challenges = Challenges(clock)
        self._challenge_handler = grpc.unary_unary_rpc_method_handler(
            self._give_challenge, None, GetChallengeResponse.SerializeToString
        )

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> _Handler:
        method = handler_call_details.method
        if method == GET_CHALLENGE:
            return self._challenge_handler
        handler = await continuation(handler_call_details)
        if self._credentials is None or method in OPEN_CALLS or handler is None:
            return handler
        flaw = self._flaw(self._credentials, method, handler_call_details.invocation_metadata)
        if flaw is None:
            return handler
        if not self._is_required:
            self._note("taken", method, flaw, peer="")
            return handler
        return self._refusing(method, flaw)

    def _flaw(
        self, credentials: ClusterCredentials, method: str, metadata: Iterable[tuple[str, Any]]
    ) -> MetadataError | None:
        """Return the error in a call's proof, None if the proof is valid."""
        given = next((value for key, value in metadata or () if key == PROOF_KEY), None)
        if not isinstance(given, bytes):
            return Unauthenticated(
                "this node needs the cluster secret, and the call came without proof of it: "
                "start the caller with the cluster's --cluster-secret-file"
            )
        proof = credentials.checked(method, given)
        if proof is None:
            return Unauthenticated(
                # The caller is unauthenticated: the error must not name even the cluster's id.
                "this node needs the cluster secret, and the caller's is another one, or for "
                "another cluster: check its --cluster-secret-file, its --cluster-id, and the "
                "addresses that it was given"
            )
        return None if self._challenges.take(proof) else Unavailable(CHALLENGE_ENDED)

    def _refusing(self, method: str, flaw: MetadataError) -> _Handler:
        async def refuse(_requests: Any, context: Any) -> NoReturn:
            if isinstance(flaw, Unauthenticated):
                self._note("refused", method, flaw, peer=context.peer())
            await abort(context, flaw)

        # A stream's handler answers before it reads, so this serves every kind of call.
        return grpc.stream_stream_rpc_method_handler(refuse)

    async def _give_challenge(self, _request: bytes, _context: Any) -> GetChallengeResponse:
        if self._credentials is None:
            return GetChallengeResponse()
        return GetChallengeResponse(challenge=self._challenges.present())

    def _note(self, outcome: str, method: str, flaw: MetadataError, *, peer: str) -> None:
        _unproven.labels(outcome).inc()
        _logger.warning(
            "a call came without proof of the cluster secret",
            outcome=outcome,
            method=method,
            reason=str(flaw),
            peer=peer,
        )
