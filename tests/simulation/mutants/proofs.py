"""The guards of calls between processes: proofs of the cluster secret (ADR 0057), and messages of
several requests (ADR 0089)."""

from __future__ import annotations

from nextgen.client.routing.request_outbox import RequestOutbox
from nextgen.client.transport import channel
from nextgen.client.transport.member_gate import Challenges, MemberGate
from nextgen.client.transport.proving_channel import ProvingChannel
from shards.adapters.exchange_stream import ExchangeStream
from shards.state.command_outcomes import CommandOutcomes
from tests.simulation.mutants.mutant import Edit, Mutant

_UNIT = ("tests/unit/client/transport/test_member_gate.py",)
_SIMULATED = ("tests/simulation/test_cluster_secret.py",)
_OUTBOX = ("tests/unit/client/routing/test_request_outbox.py",)
_STREAM = ("tests/unit/shards/adapters/test_exchange_stream.py",)

MUTANTS = (
    Mutant(
        "requests-share-messages-to-a-release-that-reads-none",
        "R5",
        "a node that says nothing of batches gets one request in each message",
        (Edit(RequestOutbox, "_message", "not self._takes_batches", "False"),),
        _OUTBOX,
    ),
    Mutant(
        "answers-share-messages-to-a-release-that-reads-none",
        "R5",
        "a client that says nothing of batches gets one answer in each message",
        (Edit(ExchangeStream, "_next_answers", "not self._takes_batches", "False"),),
        _STREAM,
    ),
    Mutant(
        "a-late-answer-holds-requests-back-without-bound",
        "IN14",
        "a request waits for the answer to another one for a bounded time",
        (Edit(RequestOutbox, "_message", "hold_ms / 1_000", "3_600"),),
        _OUTBOX,
    ),
    Mutant(
        "answers-to-earlier-messages-release-requests",
        "IN14",
        "requests wait for an answer to the latest message",
        (Edit(RequestOutbox, "answered", "request_id >= self._first_of_latest", "True"),),
        _OUTBOX,
    ),
    Mutant(
        "outcomes-read-ahead-outlive-their-commands",
        "C1",
        "an outcome that was unknown when it was read ahead is read again behind its command",
        (Edit(CommandOutcomes, "add", "self._read_ahead.pop(command_id, None)", "pass"),),
        ("tests/unit/shards/state/test_exactly_once.py",),
    ),
    Mutant(
        "requests-of-much-work-begin-together",
        "IN13",
        "requests of one message that cost much for few bytes begin in turns",
        (Edit(ExchangeStream, "_take", "self._begin(each, turns)", "self._begin(each)"),),
        _STREAM,
    ),
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
