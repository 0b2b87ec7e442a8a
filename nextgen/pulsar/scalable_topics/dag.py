"""Layouts as clients get them: a graph of segments."""

from __future__ import annotations

from nextgen.kernel.routing.names import TopicName
from nextgen.kernel.scalable.ranges import WHOLE_RANGE, HashRange, initial_ranges
from nextgen.pulsar.scalable_topics.ports import KnownLayout
from nextgen.pulsar.service_urls import split_urls
from protos.nextgen.v1.layouts_pb2 import TopicSegment
from protos.pulsar import PulsarApi_pb2 as pulsar


def dag_of(known: KnownLayout, controller_url: str) -> pulsar.ScalableTopicDAG:
    """Return a layout as a message, made once for all watchers: do not change it.

    ``controller_url`` is where consumers register.
    """
    made = known.messages.get(controller_url)
    if made is None:
        made = known.messages[controller_url] = _made(known, controller_url)
    return made


def _made(known: KnownLayout, controller_url: str) -> pulsar.ScalableTopicDAG:
    dag = pulsar.ScalableTopicDAG(epoch=known.topic.epoch)
    if controller_url:
        urls = split_urls(controller_url)
        dag.controller_broker_url = urls.plain
        if urls.tls:
            dag.controller_broker_url_tls = urls.tls
    for segment in known.topic.segments:
        _add(dag, segment)
        url = known.owners.get(segment.segment_id)
        if url and not segment.is_sealed:
            urls = split_urls(url)
            address = dag.segment_brokers.add(segment_id=segment.segment_id, broker_url=urls.plain)
            if urls.tls:
                address.broker_url_tls = urls.tls
    return dag


def classic_dag(name: TopicName, partitions: int) -> pulsar.ScalableTopicDAG:
    """Return the graph of a classic topic: a segment for each partition, or one for the whole.

    Clients route to them as to partitions, so the ranges mean nothing.
    """
    dag = pulsar.ScalableTopicDAG(epoch=0)
    if not partitions:
        _add_classic(dag, 0, WHOLE_RANGE, name.base_text)
        return dag
    for number, within in enumerate(initial_ranges(partitions)):
        _add_classic(dag, number, within, name.of_partition(number).text)
    return dag


def _add(dag: pulsar.ScalableTopicDAG, segment: TopicSegment) -> None:
    made = dag.segments.add(
        segment_id=segment.segment_id,
        hash_start=segment.hash_start,
        hash_end=segment.hash_end,
        state=pulsar.SEALED if segment.is_sealed else pulsar.ACTIVE,
        parent_ids=segment.parents,
        child_ids=segment.children,
        created_at_epoch=segment.created_at_epoch,
        created_at_ms=segment.created_at_ms,
        entry_bucket_splits=segment.bucket_starts,
    )
    if segment.is_sealed:
        made.sealed_at_epoch = segment.sealed_at_epoch
        made.sealed_at_ms = segment.sealed_at_ms
    if segment.legacy_topic_name:
        made.legacy_topic_name = segment.legacy_topic_name


def _add_classic(
    dag: pulsar.ScalableTopicDAG, segment_id: int, within: HashRange, name: str
) -> None:
    dag.segments.add(
        segment_id=segment_id,
        hash_start=within.start,
        hash_end=within.end,
        state=pulsar.ACTIVE,
        created_at_epoch=0,
        created_at_ms=0,
        legacy_topic_name=name,
    )
