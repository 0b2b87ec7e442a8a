"""/admin/v2/namespaces: everything but listing topics, and single policies, which a table has.

A namespace has one bundle, because nothing is placed by bundles: a wanted number is accepted and
ignored, and none is split.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from discovery.adapters.administration.quota_routes import QuotaRoutes
from discovery.adapters.rest.answer import (
    DONE,
    JSON,
    TEXT,
    Answer,
    RestFailure,
    Stream,
    content,
    json_list,
    text,
    whole_or_streamed,
)
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import BOOLEAN, TEXT_VALUE, Body, Route
from discovery.ports import Directory
from discovery.service.admin.deadline import Deadline
from discovery.service.tenancy.namespaces import NamespaceService
from discovery.service.tenancy.object_policies import ObjectPolicies
from discovery.service.tenancy.tenants import TenantService
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_MAX_MS
from nextgen.kernel.limits.placement import NAMESPACE_POLICIES_BYTES_MAX
from nextgen.pulsar.policies import whole_policies
from nextgen.pulsar.policies.policy_types import Names
from nextgen.pulsar.policies.whole_policies import WHOLE_BUNDLE

NAMESPACES = "/admin/v2/namespaces"
NAMESPACE = f"{NAMESPACES}/{{tenant}}/{{namespace}}"


class Namespaces:
    """Answers as a Pulsar of one cluster, whose namespaces have one bundle each."""

    def __init__(
        self,
        namespaces: NamespaceService,
        tenants: TenantService,
        policies: ObjectPolicies,
        directory: Directory,
        cluster_name: str,
    ) -> None:
        self._namespaces = namespaces
        self._tenants = tenants
        self._quotas = QuotaRoutes(NAMESPACE, policies, lambda request: request.namespace().text)
        self._directory = directory
        self._cluster_name = cluster_name

    def routes(self) -> list[Route]:
        return [
            *self._own_routes(),
            *self._bundle_routes(),
            *self._property_routes(),
            *self._other_policy_routes(),
            *self._quotas.routes(),
        ]

    def _own_routes(self) -> list[Route]:
        whole = Body(
            whole_policies.BODY, is_required=False, bytes_max=4 * NAMESPACE_POLICIES_BYTES_MAX
        )
        return [
            Route(
                "GET",
                f"{NAMESPACES}/{{tenant}}",
                self._list,
                "The namespaces of a tenant",
                Action.LIST,
                answers={200: "Their names, ascending."},
            ),
            Route(
                "GET",
                NAMESPACE,
                self._get,
                "All policies of a namespace",
                Action.READ,
                answers={200: "The policies; those that are unset with their defaults."},
            ),
            Route(
                "PUT",
                NAMESPACE,
                self._create,
                "Create a namespace, with policies or without",
                Action.CREATE,
                body=whole,
                answers={204: "It is created.", 409: "It exists."},
            ),
            Route(
                "DELETE",
                NAMESPACE,
                self._delete,
                "Delete a namespace without topics",
                Action.DELETE,
                query={"force": BOOLEAN},
                answers={204: "It is deleted.", 405: "Force.", 409: "It has topics."},
            ),
        ]

    def _bundle_routes(self) -> list[Route]:
        bundle = f"{NAMESPACE}/{{bundle}}"
        return [
            Route(
                "GET",
                f"{NAMESPACE}/bundles",
                self._bundles,
                "The bundles of a namespace: one",
                Action.READ,
                answers={200: "The only bundle."},
            ),
            Route(
                "PUT",
                f"{NAMESPACE}/unload",
                self._unload,
                "Take every topic from its broker",
                Action.UNLOAD,
                answers={204: "None is served; the next lookup of each assigns it again."},
            ),
            Route(
                "PUT",
                f"{bundle}/unload",
                self._unload_bundle,
                "Take every topic from its broker, or move it",
                Action.UNLOAD,
                query={"destinationBroker": TEXT_VALUE},
                answers={204: "It is done."},
            ),
            Route(
                "PUT",
                f"{bundle}/split",
                self._refuse_split,
                "Refused: there is one bundle",
                Action.CHANGE,
            ),
            Route(
                "DELETE",
                bundle,
                self._delete_bundle,
                "Refused: a namespace is deleted as a whole",
                Action.DELETE,
                answers={405: "The bundle cannot go alone."},
            ),
            Route(
                "GET",
                f"{bundle}/topicHashPositions",
                self._hash_positions,
                "Positions of topics in a bundle: none, because nothing is placed by them",
                Action.READ,
                answers={200: "No positions."},
            ),
        ]

    def _property_routes(self) -> list[Route]:
        properties, one = f"{NAMESPACE}/properties", f"{NAMESPACE}/property/{{key}}"
        given = Body(TypeAdapter(dict[str, str]))
        read, done = {200: "All of them."}, {204: "It is done."}
        found = {200: "Its value.", 204: "There is none."}
        removed = {200: "It is removed; its value was this.", 204: "There was none."}
        rows: list[tuple[str, str, Any, str, Body | None, str, Mapping[int, str]]] = [
            ("GET", properties, self._get_properties, "All properties", None, JSON, read),
            ("PUT", properties, self._add_properties, "Add", given, JSON, done),
            ("DELETE", properties, self._clear_properties, "Remove all", None, JSON, done),
            ("GET", one, self._get_property, "One property", None, TEXT, found),
            ("PUT", f"{one}/{{value}}", self._set_property, "Set one", None, JSON, done),
            ("DELETE", one, self._remove_property, "Remove one", None, TEXT, removed),
        ]
        return [
            Route(
                method,
                path,
                work,
                f"Properties of a namespace: {summary}",
                Action.READ if method == "GET" else Action.CHANGE,
                body=body,
                answers=answers,
                media_type=media_type,
            )
            for method, path, work, summary, body, media_type, answers in rows
        ]

    def _other_policy_routes(self) -> list[Route]:
        replication = f"{NAMESPACE}/replication"
        return [
            Route(
                "GET",
                replication,
                self._get_clusters,
                "The clusters of a namespace: this one",
                Action.READ,
                answers={200: "Their names."},
            ),
            Route(
                "POST",
                replication,
                self._set_clusters,
                "Refused for other clusters than this one",
                Action.CHANGE,
                body=Body(TypeAdapter(Names)),
                answers={204: "It is so already.", 403: "A cluster does not exist."},
            ),
            Route(
                "GET",
                f"{NAMESPACE}/resourcegroup",
                partial(self._checked, DONE),
                "The resource group: none",
                Action.READ,
                answers={204: "There are none."},
            ),
        ]

    # Namespaces -------------------------------------------------------------------------------

    async def _list(self, request: RestRequest) -> Answer | Stream:
        deadline = Deadline(request.timeout_ms)
        tenant = request.tenant()
        await self._tenants.info(tenant, deadline)
        return await whole_or_streamed(json_list(self._namespaces.names(tenant, deadline)))

    async def _get(self, request: RestRequest) -> Answer:
        found = await self._read(request)
        policies = policies_from_proto(found.policies)
        return content(whole_policies.whole(policies, dict(found.properties), self._cluster_name))

    async def _create(self, request: RestRequest) -> Answer:
        namespace = request.namespace()
        policies = whole_policies.policies_of(request.body, self._cluster_name)
        properties = request.body.properties if request.body is not None else None
        deadline = Deadline(request.timeout_ms)
        tenant = await self._tenants.info(namespace.tenant, deadline)
        if self._cluster_name not in tenant.allowed_clusters:
            raise RestFailure(412, f"tenant {namespace.tenant} does not allow this cluster")
        await self._namespaces.create(namespace.text, policies, properties or {}, deadline)
        return DONE

    async def _delete(self, request: RestRequest) -> Answer:
        if request.flag("force"):
            raise RestFailure(405, "a namespace is not deleted by force: delete its topics first")
        name, deadline = request.namespace().text, Deadline(request.timeout_ms)
        await self._namespaces.delete(name, deadline)
        return DONE

    # Bundles ----------------------------------------------------------------------------------

    async def _bundles(self, request: RestRequest) -> Answer:
        await self._read(request)
        return content(whole_policies.bundles())

    async def _unload(self, request: RestRequest) -> Answer:
        # All topics of a namespace take longer than one object's change.
        deadline = Deadline(REQUEST_TIMEOUT_MAX_MS)
        target = request.query.get("destinationBroker", "")
        await self._namespaces.unload(request.namespace().text, target, deadline)
        return DONE

    async def _unload_bundle(self, request: RestRequest) -> Answer:
        check_bundle(request)
        target = request.query.get("destinationBroker", "")
        broker = self._directory.view.brokers.get(target)
        if target and (broker is None or not broker.is_live):
            raise RestFailure(412, f"destinationBroker {shown(target)} is not alive")
        return await self._unload(request)

    async def _refuse_split(self, request: RestRequest) -> Answer:
        await self._read(request)
        raise RestFailure(412, "a namespace has one bundle here: topics are placed one by one")

    async def _delete_bundle(self, request: RestRequest) -> Answer:
        check_bundle(request)
        await self._read(request)
        raise RestFailure(405, "a bundle is not deleted alone: delete the namespace")

    async def _hash_positions(self, request: RestRequest) -> Answer:
        check_bundle(request)
        await self._read(request)
        name = request.namespace().text
        return content({"namespace": name, "bundle": WHOLE_BUNDLE, "topicHashPositions": {}})

    # Properties -------------------------------------------------------------------------------

    async def _get_properties(self, request: RestRequest) -> Answer:
        return content(dict((await self._read(request)).properties))

    async def _add_properties(self, request: RestRequest) -> Answer:
        return await self._change_properties(request, added=request.body)

    async def _clear_properties(self, request: RestRequest) -> Answer:
        return await self._change_properties(request, clear=True)

    async def _set_property(self, request: RestRequest) -> Answer:
        added = {request.parts["key"]: request.parts["value"]}
        return await self._change_properties(request, added=added)

    async def _get_property(self, request: RestRequest) -> Answer:
        found, key = await self._read(request), request.parts["key"]
        return text(found.properties[key]) if key in found.properties else DONE

    async def _remove_property(self, request: RestRequest) -> Answer:
        before = await self._get_property(request)
        await self._change_properties(request, removed=(request.parts["key"],))
        return before

    async def _change_properties(self, request: RestRequest, **change: Any) -> Answer:
        deadline = Deadline(request.timeout_ms)
        await self._namespaces.change_properties(request.namespace().text, deadline, **change)
        return DONE

    # Policies with paths of their own ---------------------------------------------------------

    async def _get_clusters(self, request: RestRequest) -> Answer:
        return await self._checked(content([self._cluster_name]), request)

    async def _set_clusters(self, request: RestRequest) -> Answer:
        await self._read(request)
        if not request.body:
            raise RestFailure(412, "a namespace is in one cluster at least")
        if unknown := sorted(set(request.body) - {self._cluster_name}):
            raise RestFailure(403, f"cluster {shown(unknown[0])} does not exist")
        return DONE

    # ------------------------------------------------------------------------------------------

    async def _read(self, request: RestRequest) -> Any:
        name = request.namespace().text
        return await self._namespaces.read(name, Deadline(request.timeout_ms))

    async def _checked(self, answer: Answer, request: RestRequest) -> Answer:
        """Return ``answer`` if the namespace exists."""
        await self._read(request)
        return answer


def check_bundle(request: RestRequest) -> None:
    """Check that the path names the only bundle.

    Raises:
        RestFailure: 412.
    """
    bundle = request.parts["bundle"]
    if bundle != WHOLE_BUNDLE:
        raise RestFailure(412, f"bundle {shown(bundle)} does not exist, only {WHOLE_BUNDLE} does")
