"""The service-level settings of a cluster: shows and changes them at the cluster manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextgen.cli.calls.manager_leader import ask_manager_leader
from nextgen.client.cluster.configuration import (
    ATTEMPT_TIMEOUT_MS,
    change_settings,
    overrides,
)
from nextgen.kernel.governance.service_settings import DEFAULT_TEXTS, runtime_texts
from protos.nextgen.v1.cluster_service_pb2 import (
    GetConfigurationRequest,
    GetConfigurationResponse,
    SetConfigurationRequest,
    SetConfigurationResponse,
)
from protos.nextgen.v1.events_pb2 import ConfigurationSet


class ManagerConfiguration:
    """The configuration at the cluster manager's leader, found through discovery."""

    def __init__(self, discovery_endpoints: Sequence[str]) -> None:
        self._discovery_endpoints = discovery_endpoints

    async def get(self) -> ConfigurationSet:
        async def ask(stub: Any) -> GetConfigurationResponse:
            response: GetConfigurationResponse = await stub.GetConfiguration(
                GetConfigurationRequest(), timeout=ATTEMPT_TIMEOUT_MS / 1_000
            )
            return response

        return (await ask_manager_leader(self._discovery_endpoints, ask)).configuration

    async def set(self, configuration: ConfigurationSet) -> ConfigurationSet:
        request = SetConfigurationRequest(configuration=configuration)

        async def ask(stub: Any) -> SetConfigurationResponse:
            response: SetConfigurationResponse = await stub.SetConfiguration(
                request, timeout=ATTEMPT_TIMEOUT_MS / 1_000
            )
            return response

        return (await ask_manager_leader(self._discovery_endpoints, ask)).configuration


async def gather_settings(discovery_endpoints: Sequence[str]) -> dict[str, Any]:
    """Return all settings as a JSON object, see ``described``.

    Raises:
        MetadataError: No cluster manager could be reached.
    """
    return described(await ManagerConfiguration(discovery_endpoints).get())


async def apply_changes(
    discovery_endpoints: Sequence[str], changes: Mapping[str, str | None]
) -> dict[str, Any]:
    """Override settings by name, None: no longer; return all settings as a JSON object.

    Raises:
        Refused: A name is no setting, or a value makes no sense. Nothing was changed.
        MetadataError: No cluster manager could be reached.
    """
    return described(await change_settings(ManagerConfiguration(discovery_endpoints), changes))


def described(configuration: ConfigurationSet) -> dict[str, Any]:
    """Return the version of the configuration, and every setting in the order of names.

    ``default`` is missing for a setting that this release does not know.
    """
    changed = overrides(configuration)
    values = changed | runtime_texts(changed)
    return {
        "version": configuration.version,
        "settings": [
            {
                "name": name,
                "value": values[name],
                **({"default": DEFAULT_TEXTS[name]} if name in DEFAULT_TEXTS else {}),
                "is_set": name in changed,
            }
            for name in sorted(values)
        ],
    }
