"""/admin/v2/brokers/configuration: the service-level settings that change without a restart.

They are those of the whole cluster, whichever node is asked. Values are texts, as in Pulsar.
"""

from __future__ import annotations

from discovery.adapters.rest.answer import DONE, Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Route
from discovery.ports import Directory, ServiceConfiguration
from nextgen.client.cluster.configuration import overrides
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.governance.service_settings import DEFAULT_TEXTS, runtime_texts

_PATH = "/admin/v2/brokers/configuration"


class ConfigurationRoutes:
    """Reads the pushed settings, and has the cluster manager change them.

    ``fixed`` are settings that never change, shown among those in force.
    """

    def __init__(
        self, directory: Directory, configuration: ServiceConfiguration, fixed: dict[str, str]
    ) -> None:
        self._directory = directory
        self._configuration = configuration
        self._fixed = fixed

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                _PATH,
                self._names,
                "Names of the settings that can be changed",
                Action.READ,
                answers={200: "The names."},
            ),
            Route(
                "GET",
                f"{_PATH}/values",
                self._values,
                "Settings that were changed",
                Action.READ,
                answers={200: "Their values by name."},
            ),
            Route(
                "GET",
                f"{_PATH}/runtime",
                self._runtime,
                "The settings in force",
                Action.READ,
                answers={200: "All values by name."},
            ),
            Route(
                "POST",
                f"{_PATH}/{{name}}/{{value}}",
                self._set,
                "Change a setting",
                Action.CHANGE,
                answers={
                    204: "It is changed.",
                    412: "There is no such setting, or the value makes no sense.",
                },
            ),
            Route(
                "DELETE",
                f"{_PATH}/{{name}}",
                self._unset,
                "Give a setting its default again",
                Action.CHANGE,
                answers={204: "It has its default.", 412: "There is no such setting."},
            ),
        ]

    async def _names(self, _request: RestRequest) -> Answer:
        return content(sorted(DEFAULT_TEXTS))

    async def _values(self, _request: RestRequest) -> Answer:
        return content(overrides(self._directory.view.configuration))

    async def _runtime(self, _request: RestRequest) -> Answer:
        changed = overrides(self._directory.view.configuration)
        return content(self._fixed | runtime_texts(changed))

    async def _set(self, request: RestRequest) -> Answer:
        return await self._change(request, request.parts["value"])

    async def _unset(self, request: RestRequest) -> Answer:
        return await self._change(request, None)

    async def _change(self, request: RestRequest, text: str | None) -> Answer:
        try:
            await self._configuration.change({request.parts["name"]: text})
        except Refused as refused:
            if refused.code == RejectionCode.VERSION_MISMATCH:
                raise
            raise RestFailure(412, str(refused)) from refused
        return DONE
