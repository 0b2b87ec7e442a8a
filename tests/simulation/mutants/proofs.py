"""The guards of calls between processes: proofs of the cluster secret (ADR 0057)."""

from __future__ import annotations

from nextgen.client.transport import channel
from nextgen.client.transport.member_gate import Challenges, MemberGate
from nextgen.client.transport.proving_channel import ProvingChannel
from tests.simulation.mutants.mutant import Edit, Mutant

_UNIT = ("tests/unit/client/transport/test_member_gate.py",)
_SIMULATED = ("tests/simulation/test_cluster_secret.py",)

MUTANTS = (
    Mutant(
        "gate-takes-calls-without-proof",
        "MO1",
        "a call between processes without a good proof is refused",
        (Edit(MemberGate, "intercept_service", "if flaw is None:", "if True:"),),
        _UNIT,
    ),
    Mutant(
        "gate-takes-a-proof-twice",
        "MO1",
        "a proof counts once",
        (Edit(Challenges, "take", " or proof.nonce in nonces", ""),),
        _UNIT,
    ),
    Mutant(
        "streams-begin-before-the-challenge-is-known",
        "MO1",
        "a connection counts as made once its challenge is known",
        (Edit(channel, "wait_connected", "await channel.learn_challenge()", "pass"),),
        _SIMULATED,
        (("cluster", 1),),
    ),
    Mutant(
        "calls-keep-a-challenge-that-has-ended",
        "MO1",
        "a call whose challenge has ended gets another",
        (Edit(ProvingChannel, "_proven_answer", "error.details() != CHALLENGE_ENDED", "True"),),
        _UNIT,
    ),
)
