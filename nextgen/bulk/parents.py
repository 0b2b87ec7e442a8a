"""Creates the tenants and namespaces that the topics of a load need, by ordinary commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nextgen.bulk.blocks import NAMESPACE_COLUMN, read_column
from nextgen.bulk.manifest import LoadManifest
from nextgen.client.client import Client
from nextgen.client.model import Written
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import parse_namespace

COMMANDS_IN_FLIGHT_MAX = 32
"""Concurrent requests: enough of them for a shard to commit several in one entry of its log."""


@dataclass(slots=True)
class ParentsCreated:
    """Numbers of created tenants and namespaces; existing ones are not counted."""

    tenants: int = 0
    namespaces: int = 0


async def create_parents(client: Client, folder: Path, manifest: LoadManifest) -> ParentsCreated:
    """Create every tenant and namespace of the manifest that does not exist.

    Raises:
        LoadRefused: The list of namespaces cannot be read.
        Refused: The cluster refuses one; those before it were created.
        MetadataError: The cluster does not answer.
    """
    created = ParentsCreated()
    tenants: set[str] = set()
    for namespaces in read_column(folder, manifest.namespaces, NAMESPACE_COLUMN):
        needed = {parse_namespace(each).tenant for each in namespaces} - tenants
        created.tenants += await _create_all(client.create_tenant, sorted(needed))
        created.namespaces += await _create_all(client.create_namespace, namespaces)
        tenants |= needed
    return created


async def _create_all(create: Callable[[str], Awaitable[Written]], names: Sequence[str]) -> int:
    places = asyncio.Semaphore(COMMANDS_IN_FLIGHT_MAX)

    async def create_one(name: str) -> int:
        async with places:
            try:
                await create(name)
            except Refused as refusal:
                if refusal.code != RejectionCode.ALREADY_EXISTS:
                    raise
                return 0
            return 1

    return sum(await asyncio.gather(*map(create_one, names)))
