"""The overrides of service-level settings, as a caller of the cluster manager changes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nextgen.client.cluster.link import ClusterLink
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.service_settings import DEFAULT_TEXTS
from protos.nextgen.v1.cluster_service_pb2 import (
    GetConfigurationRequest,
    GetConfigurationResponse,
    SetConfigurationRequest,
    SetConfigurationResponse,
)
from protos.nextgen.v1.events_pb2 import ConfigurationSet, Setting

ATTEMPT_TIMEOUT_MS = 4_000
"""Time-out of one call; the cluster manager itself gives up a little earlier."""

_ATTEMPTS_MAX = 5
"""Attempts of a change while others change the configuration, too."""

_PUSH_MS_MAX = 1_000
"""Wait for this node's own view to have a change. The push comes with the commit."""


class ConfigurationCalls(Protocol):
    """The two calls to the cluster manager's leader; both may be repeated."""

    async def get(self) -> ConfigurationSet: ...

    async def set(self, configuration: ConfigurationSet) -> ConfigurationSet:
        """Replace the overrides.

        Raises:
            Refused: VERSION_MISMATCH if others were set meanwhile.
        """
        ...


def overrides(configuration: ConfigurationSet) -> dict[str, str]:
    """Return the overrides by name."""
    return {each.name: each.value for each in configuration.settings}


async def change_settings(
    calls: ConfigurationCalls, changes: Mapping[str, str | None]
) -> ConfigurationSet:
    """Override settings by name, None: no longer; return the configuration with the changes.

    All changes are made together, or none. Concurrent changes of other settings are kept.

    Raises:
        Refused: NOT_FOUND: a name is no setting; NOT_ALLOWED: a value makes no sense.
        MetadataError: No cluster manager leads.
    """
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        present = await calls.get()
        before = overrides(present)
        for name in changes:
            if name not in DEFAULT_TEXTS and name not in before:
                raise Refused(RejectionCode.NOT_FOUND, f"{name} is no dynamic setting")
        after = {name: text for name, text in {**before, **changes}.items() if text is not None}
        if after == before:
            return present
        settings = [Setting(name=name, value=text) for name, text in sorted(after.items())]
        try:
            return await calls.set(ConfigurationSet(version=present.version + 1, settings=settings))
        except Refused as refused:
            if refused.code != RejectionCode.VERSION_MISMATCH or attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


class LinkConfiguration:
    """The configuration over a node's link to the cluster manager."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    async def change(self, changes: Mapping[str, str | None]) -> None:
        """See ``change_settings``. Returns when the link's own view has the changes."""
        version = (await change_settings(self, changes)).version
        await self._link.wait_until(
            lambda view: view.configuration.version >= version, _PUSH_MS_MAX
        )

    async def get(self) -> ConfigurationSet:
        answer = await self._link.call(
            "GetConfiguration",
            GetConfigurationRequest(),
            GetConfigurationResponse,
            ATTEMPT_TIMEOUT_MS,
        )
        return answer.configuration

    async def set(self, configuration: ConfigurationSet) -> ConfigurationSet:
        answer = await self._link.call(
            "SetConfiguration",
            SetConfigurationRequest(configuration=configuration),
            SetConfigurationResponse,
            ATTEMPT_TIMEOUT_MS,
        )
        return answer.configuration
