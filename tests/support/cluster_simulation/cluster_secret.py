"""The cluster secret in a run: every process has credentials of its own, or none.

In production credentials belong to a process. Here all processes share modules, so that what the
modules keep is kept with the simulated process instead. Proofs travel in the metadata of calls, as
in production. The Raft port's handshake is not part of a run: ``SimulatedMesh`` begins above it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nextgen.client.transport import channel
from nextgen.client.transport.member_gate import Challenges, MemberGate
from nextgen.client.transport.proving_channel import ProvingChannel
from nextgen.kernel.errors import MetadataError
from nextgen.runtime.security import cluster_proof
from nextgen.runtime.security.cluster_proof import ClusterCredentials, Proof
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.simulated.process import PROCESS

_SECRET = b"the secret of every simulated cluster"


def write_secret(root: Path) -> Path:
    """Write the secret of a run and return its file."""
    path = root / "cluster.secret"
    path.touch(0o600)
    path.write_bytes(_SECRET)
    return path


def _monotonic() -> float:
    """The clock of the process that runs: defaults of parameters would keep the real one."""
    return time.monotonic()


@contextmanager
def proven_calls(violate: Callable[[str], None], proofs: list[str]) -> Iterator[None]:
    """Keep credentials by process for a run; a refusal of any call violates.

    Clients call open methods alone, and members and operators have the secret. ``proofs`` gets the
    process that took it, for each proof that a server took.
    """
    real_use, real_in_use = cluster_proof.use_credentials, channel.credentials_in_use
    real_note, real_take = MemberGate._note, Challenges.take

    def use(credentials: ClusterCredentials | None) -> None:
        process = PROCESS.get()
        if isinstance(process, SimulatedProcess):
            process.credentials = credentials
        else:
            real_use(credentials)

    def in_use() -> ClusterCredentials | None:
        process = PROCESS.get()
        return process.credentials if isinstance(process, SimulatedProcess) else real_in_use()

    def note(gate: MemberGate, outcome: str, method: str, flaw: MetadataError, peer: str) -> None:
        process = PROCESS.get()
        if isinstance(process, SimulatedProcess):
            violate(f"{process.name} has no proof of {peer} for {method}: {outcome}")
        real_note(gate, outcome, method, flaw, peer=peer)

    def take(challenges: Challenges, proof: Proof) -> bool:
        is_taken = real_take(challenges, proof)
        process = PROCESS.get()
        if is_taken and isinstance(process, SimulatedProcess):
            proofs.append(process.name)
        return is_taken

    gate_defaults: Any = MemberGate.__init__.__kwdefaults__
    with ExitStack() as stack:
        stack.enter_context(patch.dict(gate_defaults, clock=_monotonic))
        stack.enter_context(patch.object(ProvingChannel.__init__, "__defaults__", (_monotonic,)))
        for owner, name, simulated in (
            (cluster_proof, "use_credentials", use),
            (channel, "credentials_in_use", in_use),
            (MemberGate, "_note", note),
            (Challenges, "take", take),
        ):
            stack.enter_context(patch.object(owner, name, simulated))
        yield
