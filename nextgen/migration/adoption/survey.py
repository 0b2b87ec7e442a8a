"""Reads what a plan is made from. Changes nothing."""

from __future__ import annotations

import asyncio

from nextgen.client.client import Client
from nextgen.kernel.routing.names import NamespaceName
from nextgen.migration.adoption.own_side import OwnSide
from nextgen.migration.adoption.plan import Facts, StockBroker
from nextgen.migration.adoption.stock_brokers import StockBrokers
from nextgen.migration.adoption.stock_cluster import StockCluster


async def survey(
    namespace: NamespaceName, client: Client, stock: StockCluster, brokers: StockBrokers
) -> Facts:
    """Return the facts about a namespace, read on all three sides.

    Raises:
        SourceFailed: Pulsar's Admin REST does not answer.
        MetadataError: This cluster does not answer, or the caller is no operator.
    """
    in_pulsar, pulsar_brokers, settings, here, stock_brokers = await asyncio.gather(
        stock.namespace(),
        stock.brokers(),
        stock.settings(),
        OwnSide(client).namespace(namespace),
        _stock_brokers(namespace, client, brokers),
    )
    return Facts(
        namespace=namespace,
        in_pulsar=in_pulsar,
        here=here,
        pulsar_brokers=pulsar_brokers,
        # A sidecar of another Pulsar cluster may have its session here as well.
        stock_brokers=tuple(each for each in stock_brokers if each.broker in pulsar_brokers),
        settings=settings,
    )


async def _stock_brokers(
    namespace: NamespaceName, client: Client, brokers: StockBrokers
) -> list[StockBroker]:
    capacities = {each.broker_id: each.capacity_units for each in (await client.cluster()).brokers}
    found = await brokers.found()
    opened = await asyncio.gather(
        *(brokers.open_topics(broker_id, namespace.text) for broker_id in found)
    )
    return [
        StockBroker(
            broker_id=broker_id,
            broker=there.broker,
            pulsar_version=there.pulsar_version,
            capacity_units=capacities.get(broker_id, 0),
            open_topics=len(topics.topics),
        )
        for (broker_id, there), topics in zip(found.items(), opened, strict=True)
    ]
