"""The records of a Pulsar cluster, over its Admin REST v2 (any version from 2.8 on).

Roles and clusters of a tenant become its properties, as with the Admin REST here. Permissions are
those of their namespace, which has those of its topics, too. Not carried, and remarked for each
object: replication to other clusters, migrations, values that no Pulsar would take, partitions
whose partitioned topic is gone, and permissions of absent topics and of single partitions. Other
policies and messages of single topics, subscriptions and positions are not read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from nextgen.kernel.governance.permissions import (
    Permissions,
    SubscriptionPermission,
    role_problem,
)
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, PolicyLevel
from nextgen.kernel.input.json_fields import as_text
from nextgen.kernel.limits.bulk import SOURCE_REQUESTS_MAX
from nextgen.kernel.routing.names import Domain, InvalidName, parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.migration.admin_rest import OPEN, AdminAccess, AdminRest, part, path_of
from nextgen.migration.records import Record, Remarks, SchemaVersion, SourceFailed
from nextgen.pulsar.policies import whole_policies
from nextgen.pulsar.policies.auth_policies import AUTH_POLICIES, AuthPolicies, permissions_of
from nextgen.pulsar.policies.refusal import PolicyRefused
from nextgen.tasks.background import cancel_and_wait, join

IMPOSSIBLE_NAME = "no such name is possible here"
"""The beginning of the remark about a topic whose name the rules here refuse."""

_TENANT_FIELDS = ("adminRoles", "allowedClusters")
_NO_SCHEMAS = frozenset({"NONE", "BYTES", "AUTO_CONSUME"})
_KNOWN_FIELDS = frozenset(whole_policies.PoliciesBody.model_fields) | {"auth_policies", "deleted"}
# Each namespace of Pulsar 5 has it; it says something only where there are replicators.
_OF_REPLICATION = "is_allow_auto_update_schema_with_replicator"


class PulsarCluster:
    """The cluster whose Admin REST is at ``url``, such as ``http://broker:8080``. Close it.

    ``access``: how the cluster lets one in.
    """

    def __init__(
        self,
        url: str,
        *,
        properties: bool = True,
        schemas: bool = True,
        access: AdminAccess = OPEN,
    ) -> None:
        self._admin = AdminRest(url, access)
        self._with_properties = properties
        self._with_schemas = schemas
        self._topic_permissions: dict[str, Mapping[str, Permissions]] = {}
        """By namespace, and in it by topic, until its topics are read."""

    async def close(self) -> None:
        """Close all connections."""
        await self._admin.close()

    async def records(self, remarks: Remarks) -> AsyncIterator[Record]:
        """See ``Source``. An object that is deleted while this reads may be left out."""
        tenants = _names(await self._admin.get("tenants"), "tenants")
        namespaces: list[str] = []
        for name in tenants:
            if record := await self._tenant(name):
                yield record
                namespaces += _names(await self._admin.get(f"namespaces/{part(name)}") or [], name)
        for name in namespaces:
            if record := await self._namespace(name, remarks):
                yield record
        for name in namespaces:
            async for record in self._topics(name, remarks):
                yield record

    async def records_of(self, namespace: str, remarks: Remarks) -> AsyncIterator[Record]:
        """Yield a namespace with its tenant and topics, as ``records``; nothing if it is absent."""
        tenant = await self._tenant(namespace.partition("/")[0])
        found = await self._namespace(namespace, remarks)
        if tenant is None or found is None:
            return
        yield tenant
        yield found
        async for record in self._topics(namespace, remarks):
            yield record

    async def _tenant(self, name: str) -> Record | None:
        info = await self._admin.get(f"tenants/{part(name)}")
        if info is None:
            return None
        try:
            lists = {field: list(info.get(field) or ()) for field in _TENANT_FIELDS}
        except (AttributeError, TypeError) as error:
            raise SourceFailed(f"tenant {name!r} is answered with {info!r:.200}") from error
        # As the Admin REST here stores them.
        properties = {field: json.dumps(value) for field, value in lists.items() if value}
        return Record(PolicyLevel.TENANT, name, properties)

    async def _namespace(self, name: str, remarks: Remarks) -> Record | None:
        body = await self._admin.get(f"namespaces/{path_of(name)}")
        if body is None:
            return None
        if not isinstance(body, dict):
            raise SourceFailed(f"the policies of {name!r} are answered with {body!r:.200}")
        if body.get("deleted"):
            remarks.add(name, "it is being deleted")
            return None
        properties = body.get("properties") or {}
        policies = policies_in(name, body, remarks)
        if of_topics := topic_permissions_in(name, body, remarks):
            self._topic_permissions[name] = of_topics
        return Record(PolicyLevel.NAMESPACE, name, properties, policies)

    async def _topics(self, namespace: str, remarks: Remarks) -> AsyncIterator[Record]:
        permissions = dict(self._topic_permissions.pop(namespace, {}))
        async for record in self._topics_of(namespace, remarks):
            if own := permissions.pop(record.name, ()):
                policies = replace(record.policies, permissions=own)
                yield replace(record, policies=policies)
            else:
                yield record
        for name in permissions:
            remarks.add(name, "permissions of a topic that is not listed")

    async def _topics_of(self, namespace: str, remarks: Remarks) -> AsyncIterator[Record]:
        for domain in (Domain.PERSISTENT, Domain.NON_PERSISTENT):
            path = f"{domain.value}/{path_of(namespace)}"
            partitioned = set(_names(await self._admin.get(f"{path}/partitioned") or [], namespace))
            names = sorted(set(_names(await self._admin.get(path) or [], namespace)) | partitioned)
            async for record in self._in_turn(names, partitioned, remarks):
                yield record

    async def _in_turn(
        self, names: Sequence[str], partitioned: set[str], remarks: Remarks
    ) -> AsyncIterator[Record]:
        """Yield the topics of ``names`` in order, asking for several at a time."""
        under_way: list[asyncio.Task[Record | None]] = []
        try:
            for name in names:
                under_way.append(join(self._topic(name, partitioned, remarks)))
                if len(under_way) > SOURCE_REQUESTS_MAX and (record := await under_way.pop(0)):
                    yield record
            while under_way:
                if record := await under_way.pop(0):
                    yield record
        finally:
            await cancel_and_wait(*under_way)

    async def _topic(self, name: str, partitioned: set[str], remarks: Remarks) -> Record | None:
        try:
            topic = parse_topic(name)
        except InvalidName as error:
            remarks.add(name, f"{IMPOSSIBLE_NAME}: {error}")
            return None
        if topic.local_name.startswith("__"):
            return None  # Pulsar's own.
        if topic.partition is not None:
            if topic.base_text not in partitioned:
                remarks.add(name, "a partition without its partitioned topic")
            return None
        path = f"{topic.domain.value}/{path_of(topic.namespace_text)}/{part(topic.local_name)}"
        partitions = 0
        if name in partitioned:
            found = await self._admin.get(f"{path}/partitions")
            if found is None:
                return None
            partitions = found.get("partitions", 0) if isinstance(found, dict) else 0
            if not isinstance(partitions, int) or partitions < 1:
                raise SourceFailed(f"the partitions of {name!r} are answered with {found!r:.200}")
        properties: Any = {}
        if self._with_properties and topic.domain is Domain.PERSISTENT:
            properties = await self._topic_properties(name, path, remarks)
        schemas: tuple[SchemaVersion, ...] = ()
        if self._with_schemas and topic.domain is Domain.PERSISTENT:
            of_topic = f"{path_of(topic.namespace_text)}/{part(topic.local_name)}"
            schemas = schemas_in(name, await self._admin.get(f"schemas/{of_topic}/schemas"))
        return Record(PolicyLevel.TOPIC, name, properties, partitions=partitions, schemas=schemas)

    async def _topic_properties(self, name: str, path: str, remarks: Remarks) -> Any:
        properties = await self._admin.get(f"{path}/properties") or {}
        if SHADOW_SOURCE_PROPERTY in properties:
            remarks.add(name, "whether its source lists it: see 'nextgen topics set-shadows'")
        return properties


def policies_in(name: str, body: Mapping[str, Any], remarks: Remarks) -> Policies:
    """Return the policies in a namespace's whole object; ``remarks`` gets what is left out."""
    clusters = body.get("replication_clusters") or []
    if len(clusters) > 1:
        remarks.add(name, f"replication to {len(clusters)} clusters")
    fields: dict[str, Any] = {}
    for field, value in body.items():
        if field in _KNOWN_FIELDS:
            fields[field] = value
        elif field != _OF_REPLICATION and value not in (None, False, 0, "", [], {}):
            remarks.add(name, f"the policy {field}")
    permissions = _namespace_permissions(name, fields.pop("auth_policies", None), remarks)
    for field in ("deleted", "replication_clusters", "bundles", "properties"):
        fields.pop(field, None)
    try:
        policies = _read(fields)
    except (ValidationError, PolicyRefused):
        policies = _one_by_one(name, fields, remarks)
    return replace(
        policies,
        permissions=permissions.permissions,
        subscription_permissions=permissions.subscription_permissions,
    )


def topic_permissions_in(
    name: str, body: Mapping[str, Any], remarks: Remarks
) -> dict[str, Permissions]:
    """Return the permissions of topics in a namespace's whole object, by the topics' names.

    Those of single partitions are left out, because a topic here has them as a whole: it would
    permit more. A Pulsar that grants for a partitioned topic has them for its name as well.
    """
    found: dict[str, Permissions] = {}
    given = _auth_policies(body.get("auth_policies")) or AUTH_POLICIES.validate_python({})
    for text, roles in given.destination_auth.items():
        try:
            topic = parse_topic(text)
        except InvalidName as error:
            remarks.add(name, f"permissions of {text[:80]!a}: {error}")
            continue
        if topic.partition is None:
            found[topic.text] = _possible(topic.text, permissions_of(roles), remarks)
        elif topic.base_text not in given.destination_auth:
            remarks.add(topic.text, "permissions of a single partition")
    return {topic: permissions for topic, permissions in found.items() if permissions}


def _namespace_permissions(name: str, given: Any, remarks: Remarks) -> Policies:
    """Return policies with the permissions in ``given``, the others remarked."""
    read = _auth_policies(given)
    if read is None:
        remarks.add(name, "permissions (auth_policies)")
        return NO_POLICIES
    roles = {
        subscription: tuple(sorted(role for role in {*roles} if not role_problem(role)))
        for subscription, roles in read.subscription_auth_roles.items()
    }
    for subscription, possible in roles.items():
        if lost := {*read.subscription_auth_roles[subscription]} - {*possible}:
            shown = f"{min(lost)[:80]!a} for subscription {subscription[:80]!a}"
            remarks.add(name, f"the permission of role {shown}")
    return replace(
        NO_POLICIES,
        permissions=_possible(name, permissions_of(read.namespace_auth), remarks),
        subscription_permissions=tuple(
            SubscriptionPermission(subscription, roles[subscription])
            for subscription in sorted(roles)
            if roles[subscription]
        ),
    )


def _auth_policies(given: Any) -> AuthPolicies | None:
    """Return the permissions in ``given``, None if it has other values than a Pulsar's."""
    try:
        return AUTH_POLICIES.validate_python(given or {})
    except ValidationError:
        return None


def _possible(name: str, permissions: Permissions, remarks: Remarks) -> Permissions:
    for permission in permissions:
        if problem := role_problem(permission.role):
            remarks.add(name, f"the permissions of {permission.role[:80]!a}: {problem}")
    return tuple(each for each in permissions if not role_problem(each.role))


def _one_by_one(name: str, fields: Mapping[str, Any], remarks: Remarks) -> Policies:
    """Return the policies of those fields that are fine together."""
    taken: dict[str, Any] = {}
    policies = NO_POLICIES
    for field, value in fields.items():
        try:
            policies = _read({**taken, field: value})
        except (ValidationError, PolicyRefused) as error:
            remarks.add(name, f"the policy {field}: {' '.join(str(error).split())}")
        else:
            taken[field] = value
    return policies


def _read(fields: Mapping[str, Any]) -> Policies:
    body = whole_policies.BODY.validate_python(dict(fields))
    return whole_policies.policies_of(body, "")


def schemas_in(name: str, answer: Any) -> tuple[SchemaVersion, ...]:
    """Return the versions in an answer about a topic's schemas, none for None.

    Raises:
        SourceFailed: It is none.
    """
    if answer is None:
        return ()
    try:
        versions = sorted(answer["getSchemaResponses"], key=lambda each: int(each["version"]))
        return tuple(
            [
                SchemaVersion(
                    as_text(each["type"]),
                    as_text(each["data"] or ""),
                    {key: as_text(text) for key, text in (each["properties"] or {}).items()},
                )
                for each in versions
                # What a Pulsar has of a topic whose schema was deleted.
                if each["type"] not in _NO_SCHEMAS
            ]
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SourceFailed(f"the schemas of {name!r} are answered with {answer!r:.200}") from error


def _names(found: Any, of: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise SourceFailed(f"the names in {of!r} are answered with {found!r:.200}")
    return sorted(set(found))
