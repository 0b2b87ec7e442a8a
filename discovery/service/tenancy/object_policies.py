"""Reads and changes single policies of an object, though policies are set as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from discovery.service.admin.deadline import Deadline
from discovery.service.admin.policies import PoliciesService
from discovery.service.tenancy.pages import repeated_change
from nextgen.client.wire.policies import policies_from_proto, policies_to_proto
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import CONSISTENCY_EFFECTIVE

Change = Callable[[Policies], Policies]
"""Returns the policies as they shall be. It may be called several times."""


class ObjectPolicies:
    """``name`` is that of a tenant, a namespace or a topic: see ``policies.holder_of``."""

    def __init__(self, policies: PoliciesService) -> None:
        self._policies = policies
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, name: str, deadline: Deadline, *, merged: bool = False) -> Policies:
        """Return an object's own policies; ``merged``: with those of the objects above it.

        Raises:
            Refused: NOT_FOUND, there is no such object.
        """
        request = pb.GetPoliciesRequest(name=name, merged=merged)
        found = await self._policies.get_policies(request, deadline.remaining_ms())
        return policies_from_proto(found.merged if merged else found.policies)

    async def change(
        self, name: str, change: Change, deadline: Deadline, *, is_confirmed: bool = False
    ) -> None:
        """Set what ``change`` makes of an object's policies; return when that is effective.

        Changes by others at the same time are kept: what was set in between is read again. Those
        of this process take turns. With ``is_confirmed`` policies that are so already are written
        again, so that the return means that they are effective: an earlier attempt may have ended
        before they were.

        Raises:
            Refused: NOT_FOUND; the rules say no; VERSION_MISMATCH, others changed them each time.
            Unavailable: There was no turn within the deadline; nothing is set.
            Indefinite: It may be set; the same change may be repeated.
        """

        async def attempt() -> None:
            wanted = pb.GetPoliciesRequest(name=name)
            found = await self._policies.get_policies(wanted, deadline.remaining_ms())
            before = policies_from_proto(found.policies)
            after = change(before)
            if after == before and not (is_confirmed and found.version):
                return
            await self._policies.set_policies(
                pb.SetPoliciesRequest(
                    name=name,
                    policies=None if after == NO_POLICIES else policies_to_proto(after),
                    expected_version=found.version,
                    expects_none=not found.version,
                    consistency=CONSISTENCY_EFFECTIVE,
                ),
                deadline.remaining_ms(),
            )

        turn = self._turns.get(name)
        if turn is None:
            turn = self._turns[name] = asyncio.Lock()
        try:
            async with timeout(deadline.remaining_ms() / 1_000):
                await turn.acquire()
        except TimeoutError:
            raise Unavailable(f"changes of {name} took all the time: nothing is set") from None
        try:
            await repeated_change(attempt)
        finally:
            turn.release()
