"""Renames namespaces and tenants: their topics are renamed one by one, in turns.

    turn ─▶ how far is it? ─▶ check topics ─▶ mark OLD, create NEW ─▶ rename topics ─▶ delete OLD
               done ◀─╯            ╰──── the time of the turn is over: go on in the next ────╯

A turn that is broken off leaves every topic with one of its two names. The next turn, at whichever
node, finds by the marks of both names how far the rename is (``discovery.domain.parent_rename``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from discovery.domain.parent_rename import (
    CheckedTo,
    Parent,
    Stage,
    check_grace,
    check_renamable,
    moved_name,
    parse_checked,
    stage_of,
    why_kept,
)
from discovery.service.admin.deadline import Deadline, all_of
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.tenancy.both_names import NAMESPACE, TENANT, BothNames, Kind, parent_of
from discovery.wire import parse_name
from nextgen.client.wire.policies import unpack_policies
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import merge
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.write import (
    KEPT_NAMES_SHOWN_MAX,
    PARENT_RENAME_PAUSE_MS,
    PARENT_RENAME_TURN_MS,
    REFILLS_MAX,
    RENAME_GRACE_MS,
    TOPIC_RENAME_MS_MIN,
    TOPIC_RENAMES_IN_FLIGHT_MAX,
)
from nextgen.kernel.routing.names import parse_namespace, parse_tenant
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Topic


class ParentRenames:
    """Carries out renames, for any number of callers. Raises ``MetadataError`` kinds only."""

    def __init__(
        self,
        inventory: InventoryService,
        listing: ListingService,
        unix_ms: Callable[[], int],
        turn_ms: int = PARENT_RENAME_TURN_MS,
    ) -> None:
        """``turn_ms``: after so long a turn begins nothing more; it does one thing at least."""
        self._inventory = inventory
        self._listing = listing
        self._unix_ms = unix_ms
        self._turn_ms = turn_ms

    async def rename_namespace(
        self, request: pb.RenameParentRequest, timeout_ms: int
    ) -> pb.RenameParentResponse:
        """Rename a namespace as far as one turn goes. Repeat it until it is done.

        Raises:
            Refused: NOT_FOUND; PARENT_NOT_FOUND: no tenant of the new name; ALREADY_EXISTS: there
                is such a namespace, or a topic of its new name; NOT_ALLOWED: a topic keeps its
                name, or either namespace is being deleted, or the old one gets another name;
                LIMIT_EXCEEDED. Before the new namespace is there nothing was changed; behind it,
                each topic has one of its names.
        """
        name = parse_name(parse_namespace, request.name).text
        new_name = parse_name(parse_namespace, request.new_name).text
        turn = self._turn(request, timeout_ms)
        return await turn.run(partial(turn.go_on_with_namespace, name, new_name))

    async def rename_tenant(
        self, request: pb.RenameParentRequest, timeout_ms: int
    ) -> pb.RenameParentResponse:
        """Rename a tenant, namespace by namespace; otherwise as ``rename_namespace``."""
        name = parse_name(parse_tenant, request.name)
        new_name = parse_name(parse_tenant, request.new_name)
        turn = self._turn(request, timeout_ms)
        return await turn.run(partial(turn.go_on_with_tenant, name, new_name))

    def _turn(self, request: pb.RenameParentRequest, timeout_ms: int) -> _Turn:
        grace_ms = request.grace_ms if request.HasField("grace_ms") else RENAME_GRACE_MS
        check_grace(grace_ms)
        return _Turn(
            self._inventory,
            self._listing,
            self._unix_ms(),
            grace_ms,
            parse_checked(request.token),
            timeout_ms,
            # What was begun at the end of a turn has as much time again.
            min(timeout_ms // 2, self._turn_ms),
        )


class _Turn:
    """One request: what it may use, and what it has done."""

    def __init__(
        self,
        inventory: InventoryService,
        listing: ListingService,
        now_ms: int,
        grace_ms: int,
        checked: CheckedTo,
        timeout_ms: int,
        turn_ms: int,
    ) -> None:
        self._inventory = inventory
        self._names = BothNames(inventory, self._remaining_ms)
        self._listing = listing
        self._now_ms = now_ms
        self._grace_ms = grace_ms
        self._checked = checked
        self._deadline = Deadline(timeout_ms)
        self._until = Deadline(turn_ms)
        self._answer = pb.RenameParentResponse()
        self._trouble: MetadataError | None = None
        """Why topics were not renamed that may be later."""
        self._filled = 0
        """Attempts to delete an old name in which something came about meanwhile."""

    async def run(self, go_on: Callable[[], Any]) -> pb.RenameParentResponse:
        """Repeat ``go_on`` until it returns that the rename is done, or the turn is over.

        Raises:
            MetadataError: Nothing was done, and this is why.
        """
        answer = self._answer
        while not answer.is_done:
            answer.is_done = await go_on()
            if self._is_over:
                break
        if self._trouble is not None and not (answer.is_done or answer.renamed or answer.checked):
            raise self._trouble
        if not answer.is_done:
            answer.next_token = str(self._checked)
        return answer

    @property
    def _is_over(self) -> bool:
        return self._until.is_over

    def _remaining_ms(self) -> int:
        return self._deadline.remaining_ms("in the middle of a rename: repeat it to go on")

    # Namespaces -------------------------------------------------------------------------------

    async def go_on_with_namespace(
        self, name: str, new_name: str, *, in_tenant: bool = False
    ) -> bool:
        """Do one round of a namespace's rename; return whether that is done. ``in_tenant``: its
        tenant is being renamed, and its topics were checked before."""
        check_renamable(NAMESPACE.noun, name)
        self._answer.namespace = name
        old, stage = await self._names.begin(NAMESPACE, name, new_name)
        if old is None:
            return True
        if stage is Stage.NEW:
            if not in_tenant:
                tenant = await self._tenant_of(new_name)
                if not self._checked.is_done:
                    self._checked.is_done = await self._check_topics(old, new_name, tenant)
                if not self._checked.is_done:
                    return False
            old = await self._names.make(NAMESPACE, old, new_name)
        page = await self._listing.list_topics(
            pb.ListObjectsRequest(
                parent=name, page_size=PAGE_ITEMS_MAX, names_only=True, packed_names=True
            ),
            self._remaining_ms(),
        )
        if page.names:
            await self._rename_topics(page.names, new_name)
            return False
        return await self._is_ended(NAMESPACE, name, new_name)

    async def _tenant_of(self, new_name: str) -> Parent:
        tenant = await self._names.read(TENANT, parse_namespace(new_name).tenant)
        if tenant is None or tenant.is_deleting:
            raise Refused(
                RejectionCode.PARENT_NOT_FOUND,
                f"the tenant of {new_name} does not exist, or is being deleted",
            )
        return tenant

    async def _check_topics(self, old: Parent, new_name: str, tenant: Parent) -> bool:
        """Check that all topics can be renamed; return False if the turn is over before that.

        ``tenant``: whose policies hold for the new name.

        Raises:
            Refused: One cannot.
        """
        checked = self._checked
        while True:
            request = pb.ListObjectsRequest(
                parent=old.name, page_size=PAGE_ITEMS_MAX, page_token=checked.topics
            )
            page = await self._listing.list_topics(request, self._remaining_ms())
            topics = [item.topic for item in page.items]
            self._refuse_kept(topics, new_name)
            checked.count += len(topics)
            self._answer.checked += len(topics)
            checked.topics = page.next_page_token
            if not checked.topics:
                _check_count(checked.count, old, tenant)
                checked.count = 0
                return True
            if self._is_over:
                return False

    def _refuse_kept(self, topics: Sequence[Topic], new_name: str) -> None:
        """Raise if some of the topics keep their names, and name the first of them."""
        kept = [
            f"{topic.name} {why}"
            for topic in topics
            if (
                why := why_kept(
                    topic.name,
                    topic.properties,
                    [(each.name, each.until_ms) for each in topic.former_names],
                    new_name,
                    self._now_ms,
                    has_shadows=bool(topic.policies.shadow_topics),
                )
            )
        ]
        if kept:
            shown = "; ".join(kept[:KEPT_NAMES_SHOWN_MAX])
            raise Refused(RejectionCode.NOT_ALLOWED, f"nothing is renamed, because {shown}")

    async def _rename_topics(self, names: Sequence[str], new_name: str) -> None:
        """Rename a page of topics, or as many as the turn has time for.

        Raises:
            Refused: A shard refused one. Others may have been renamed.
        """
        pending = iter(names)
        refused: list[Refused] = []
        trouble: list[MetadataError] = []
        before = self._answer.renamed

        async def work() -> None:
            for name in pending:
                try:
                    await self._rename_topic(name, new_name)
                except Refused as error:
                    refused.append(error)
                except MetadataError as error:
                    trouble.append(error)
                if refused or self._is_over:
                    return

        await all_of([work() for _ in range(min(len(names), TOPIC_RENAMES_IN_FLIGHT_MAX))])
        if refused:
            raise refused[0]
        self._filled = 0
        if trouble and self._answer.renamed == before:
            self._trouble = trouble[0]
            await asyncio.sleep(PARENT_RENAME_PAUSE_MS / 1_000)

    async def _rename_topic(self, name: str, new_name: str) -> None:
        request = pb.RenameTopicRequest(
            name=name, new_name=moved_name(name, new_name), grace_ms=self._grace_ms
        )
        try:
            await self._inventory.rename_topic(request, self._rename_ms())
        except Refused as error:
            if error.code == RejectionCode.NOT_FOUND:
                return  # It was deleted, or another run renamed it.
            raise Refused(error.code, f"{name} keeps its name: {error}") from error
        self._answer.renamed += 1

    def _rename_ms(self) -> int:
        """Return the time for the rename of a topic, with a unit in a move perhaps: as much as the
        turn has, so that the answer to the turn is in time."""
        left_ms = 0 if self._is_over else self._until.remaining_ms()
        return min(self._remaining_ms(), max(left_ms, TOPIC_RENAME_MS_MIN))

    async def _is_ended(self, kind: Kind, name: str, new_name: str) -> bool:
        """Delete what is called ``name`` if it is empty; return whether it is gone."""
        try:
            return await self._names.end(kind, name, new_name)
        except Refused as error:
            if error.code not in (RejectionCode.NOT_EMPTY, RejectionCode.VERSION_MISMATCH):
                raise
            self._filled += 1
            if self._filled > REFILLS_MAX:
                raise
            return False

    # Tenants ----------------------------------------------------------------------------------

    async def go_on_with_tenant(self, name: str, new_name: str) -> bool:
        """Do one round of a tenant's rename; return whether that is done."""
        check_renamable(TENANT.noun, name)
        old, stage = await self._names.begin(TENANT, name, new_name)
        if old is None:
            return True
        if stage is Stage.NEW:
            if not await self._check_namespaces(old, new_name):
                return False
            old = await self._names.make(TENANT, old, new_name)
        request = pb.ListObjectsRequest(parent=name, page_size=PAGE_ITEMS_MAX, names_only=True)
        page = await self._listing.list_namespaces(request, self._remaining_ms())
        for item in page.items:
            moved = f"{new_name}/{parse_namespace(item.name).local}"
            while not await self._is_moved(item.name, moved):
                if self._is_over:
                    return False
        return not page.items and await self._is_ended(TENANT, name, new_name)

    async def _is_moved(self, name: str, new_name: str) -> bool:
        """Do one round of a namespace; return whether the tenant is rid of it."""
        try:
            return await self.go_on_with_namespace(name, new_name, in_tenant=True)
        except Refused as error:
            if error.code != RejectionCode.NOT_FOUND:
                raise
            return True  # It was deleted since it was listed.

    async def _check_namespaces(self, tenant: Parent, new_name: str) -> bool:
        """Check all namespaces and their topics; return False if the turn is over before that."""
        checked = self._checked
        while not checked.is_done:
            request = pb.ListObjectsRequest(
                parent=tenant.name, page_size=1, page_token=checked.namespaces
            )
            page = await self._listing.list_namespaces(request, self._remaining_ms())
            for item in page.items:
                old = parent_of(NAMESPACE, item.namespace)
                moved = f"{new_name}/{parse_namespace(old.name).local}"
                self._answer.namespace = old.name
                stage_of(NAMESPACE.noun, old.name, moved, old, None)
                await self._names.check_target(NAMESPACE, old, moved)
                if not await self._check_topics(old, moved, tenant):
                    return False
            checked.namespaces = page.next_page_token
            checked.is_done = not checked.namespaces
            if not checked.is_done and self._is_over:
                return False
        return True


def _check_count(count: int, old: Parent, tenant: Parent) -> None:
    """Check that a namespace of so many topics may be in the tenant."""
    policies = merge(unpack_policies(tenant.policies), unpack_policies(old.policies))
    if policies.topics_max and count > policies.topics_max:
        raise Refused(
            RejectionCode.LIMIT_EXCEEDED,
            f"namespace {old.name} has {count} topics, by its new name it may have "
            f"{policies.topics_max}",
        )
