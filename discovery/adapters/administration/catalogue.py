"""All routes of a discovery node, and the services that they need."""

from __future__ import annotations

from dataclasses import dataclass

from discovery.adapters.administration.absent import absent_routes
from discovery.adapters.administration.brokers import Brokers, HeldNamespaces, Readiness
from discovery.adapters.administration.clusters import Clusters, LocalCluster
from discovery.adapters.administration.namespace_backlogs import NamespaceBacklogRoutes
from discovery.adapters.administration.namespaces import NAMESPACE, Namespaces
from discovery.adapters.administration.parent_renames import ParentRenameRoutes
from discovery.adapters.administration.permission_routes import PermissionRoutes
from discovery.adapters.administration.policy_routes import PolicyRoutes
from discovery.adapters.administration.shadow_topics import ShadowTopicRoutes
from discovery.adapters.administration.tenants import Tenants
from discovery.adapters.administration.topic_policies import AUTO_SCALE, TopicPolicyRoutes
from discovery.adapters.resources.lookups import Lookups
from discovery.adapters.resources.topic_catalogue import topic_routes
from discovery.adapters.rest.route import Route
from discovery.adapters.scalable.layout_changes import LayoutChangeRoutes
from discovery.adapters.scalable.subscriptions import SubscriptionRoutes
from discovery.adapters.scalable.topics import TOPIC as SCALABLE_TOPIC
from discovery.adapters.scalable.topics import ScalableTopicRoutes
from discovery.ports import Directory, ServiceConfiguration
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.admin.moves import MoveService
from discovery.service.admin.policies import PoliciesService
from discovery.service.admin.topic_operations import Owners, TopicOperations
from discovery.service.scalable.layouts import LayoutService
from discovery.service.scalable.topics import ScalableTopics
from discovery.service.tenancy.namespace_backlogs import NamespaceBacklogs
from discovery.service.tenancy.namespaces import NamespaceService
from discovery.service.tenancy.object_policies import ObjectPolicies
from discovery.service.tenancy.parent_renames import ParentRenames
from discovery.service.tenancy.tenants import TenantService
from nextgen.kernel.routing.names import Domain
from nextgen.pulsar.metadata_commands import TopicDirectory
from nextgen.pulsar.policies.policy_table import POLICIES


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The services that the resources call."""

    topics: TopicDirectory
    owners: Owners
    directory: Directory
    held: HeldNamespaces
    inventory: InventoryService
    renames: ParentRenames
    listing: ListingService
    policies: PoliciesService
    moves: MoveService
    local: LocalCluster
    readiness: Readiness
    version: str
    configuration: ServiceConfiguration


def all_routes(services: AdminServices) -> list[Route]:
    local = services.local
    tenants = TenantService(services.inventory, services.listing, local.name)
    namespaces = NamespaceService(services.inventory, services.listing, services.moves)
    policies = ObjectPolicies(services.policies)
    operations = TopicOperations(services.owners, services.inventory, services.moves)
    backlogs = NamespaceBacklogs(operations, services.listing)
    by_name = PolicyRoutes(NAMESPACE, policies, lambda request: request.namespace().text)
    of_scalable = PolicyRoutes(
        SCALABLE_TOPIC,
        policies,
        lambda request: request.topic().text,
        has_applied=True,
        topic_domain=Domain.TOPIC.value,
    )
    scalable = ScalableTopics(services.owners, services.inventory)
    layouts = LayoutService(services.owners, services.inventory)
    return [
        *Lookups(services.topics, services.directory, has_https=local.has_https).routes(),
        *topic_routes(services.owners, services.inventory, services.listing, services.moves),
        *Tenants(tenants, local.name).routes(),
        *Namespaces(namespaces, tenants, policies, services.directory, local.name).routes(),
        *ParentRenameRoutes(services.renames).routes(),
        *NamespaceBacklogRoutes(namespaces, backlogs).routes(),
        *by_name.routes(POLICIES),
        *TopicPolicyRoutes(policies, local.name).routes(),
        *ShadowTopicRoutes(policies).routes(),
        *PermissionRoutes(policies).routes(),
        *ScalableTopicRoutes(scalable, AUTO_SCALE).routes(),
        *LayoutChangeRoutes(scalable, layouts).routes(),
        *SubscriptionRoutes(layouts).routes(),
        *of_scalable.routes([AUTO_SCALE]),
        *absent_routes(),
        *Clusters(local).routes(),
        *Brokers(
            services.directory,
            services.held,
            local,
            services.readiness,
            services.version,
            services.configuration,
        ).routes(),
    ]
