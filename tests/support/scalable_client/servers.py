"""The servers that the checks run on, and what an operator does to their topics."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from nextgen.client import st
from nextgen.client.st.errors import ServerRefused
from tests.support.callers.stock_client import PulsarSystem

JAVA_MIN = 21
"""What a stock broker of 5.0 needs."""

CREATE_MS = 15_000


class NotThere(Exception):
    """What a server does not have, so that a check of it is skipped."""


class Server:
    """One cluster: where clients connect, and its admin interface."""

    splits_under_load = False
    """Whether a segment may be split while messages are on their way to it. The milestone 5.0.0-M1
    then fences the segment at times, and lets nobody read or end it until it is unloaded."""

    def __init__(self, service_url: str, http_url: str) -> None:
        self.service_url = service_url
        self._http_url = http_url

    def client(self, **settings: Any) -> st.PulsarClient:
        settings.setdefault("operation_timeout_ms", CREATE_MS)
        return st.PulsarClient(self.service_url, **settings)

    async def stream_consumer(
        self, client: st.PulsarClient, topic: str, subscription: str, **settings: Any
    ) -> st.StreamConsumer[bytes]:
        try:
            return await client.stream_consumer(topic, subscription, **settings)
        except ServerRefused as error:
            if "not supported" in str(error):
                raise NotThere("this server has no stream consumers yet") from error
            raise

    async def create(self, name: str, segments: int = 1) -> str:
        """Create a scalable topic; return its full name."""
        topic = f"topic://public/default/{name}"
        await self._scalable("PUT", f"{name}?numInitialSegments={segments}", f"{segments} segments")
        return topic

    async def create_with(self, name: str, properties: dict[str, str]) -> str:
        """Create a scalable topic of one segment with properties; return its full name."""
        await self._call("PUT", f"scalable/public/default/{name}", json=properties)
        return f"topic://public/default/{name}"

    async def delete(self, name: str) -> None:
        """Delete a scalable topic, although it is in use."""
        await self._call("DELETE", f"scalable/public/default/{name}?force=true", json=None)

    async def create_partitioned(self, name: str, partitions: int) -> str:
        """Create a classic topic; return its full name."""
        await self._call("PUT", f"persistent/public/default/{name}/partitions", json=partitions)
        return f"persistent://public/default/{name}"

    async def split(self, name: str, segment_id: int) -> None:
        await self._scalable("POST", f"{name}/split/{segment_id}", "splits")

    async def _scalable(self, method: str, path: str, feature: str) -> None:
        try:
            await self._call(method, f"scalable/public/default/{path}", json={})
        except aiohttp.ClientResponseError as error:
            if error.status in (404, 405, 501):
                raise NotThere(f"this server has no {feature} yet") from error
            raise

    async def _call(self, method: str, path: str, *, json: Any) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self._http_url}/admin/v2/{path}", json=json) as answer,
        ):
            answer.raise_for_status()


class OwnServer(Server):
    """A cluster of this project. A topic of one segment is created by the client's lookup."""

    splits_under_load = True

    def __init__(self, system: PulsarSystem) -> None:
        super().__init__(system.service_url, system.http_url)
        self._system = system

    async def create(self, name: str, segments: int = 1) -> str:
        topic = f"topic://public/default/{name}"
        if segments > 1:
            arguments = ("scalable-topics", "create", topic, "--segments", str(segments))
            await asyncio.to_thread(self._system.command, *arguments)
        return topic

    async def split(self, name: str, segment_id: int) -> None:
        topic = f"topic://public/default/{name}"
        await asyncio.to_thread(self._system.split_segment, topic, segment_id)


def newest_java() -> str | None:
    """Return the path of a Java that can run a stock broker of 5.0, if there is one."""
    found = shutil.which("java")
    candidates: Sequence[str] = [
        *([found] if found else []),
        *(str(each) for each in sorted(Path("/usr/lib/jvm").glob("*/bin/java"), reverse=True)),
    ]
    for each in candidates:
        result = subprocess.run([each, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r'version "(\d+)', result.stderr)
        if version is not None and int(version[1]) >= JAVA_MIN:
            return each
    return None
