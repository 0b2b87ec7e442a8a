"""All routes of topics, and the way to their brokers."""

from __future__ import annotations

from discovery.adapters.resources.messages import Messages
from discovery.adapters.resources.schemas import Schemas
from discovery.adapters.resources.subscriptions import Subscriptions
from discovery.adapters.resources.topic_names import TopicNames
from discovery.adapters.resources.topic_rename import TopicRenames
from discovery.adapters.resources.topic_stats import TopicStats
from discovery.adapters.resources.topics import Topics
from discovery.adapters.rest.route import Route
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.admin.moves import MoveService
from discovery.service.admin.topic_operations import Owners, TopicOperations


def topic_routes(
    owners: Owners, inventory: InventoryService, listing: ListingService, moves: MoveService
) -> list[Route]:
    operations = TopicOperations(owners, inventory, moves)
    return [
        *TopicNames(listing, inventory).routes(),
        *Topics(operations).routes(),
        *TopicRenames(operations).routes(),
        *TopicStats(operations).routes(),
        *Subscriptions(operations).routes(),
        *Messages(operations).routes(),
        *Schemas(operations).routes(),
    ]
