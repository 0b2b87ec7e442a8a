"""The keys of an event: the names it is about. Prefixes and watches are matched against them.

A tenant, a namespace (``tenant/namespace``), a topic or partition by its canonical name, or a
broker id. Events of shards, nodes and maps are about no name and have the key ``""``. The rename of
a topic has two keys, the former name and the new one; all others have one.
"""

from __future__ import annotations

from types import MappingProxyType

from protos.nextgen.v1.events_pb2 import Event

NO_KEY = ""
"""Key of an event that is about no name."""

KEY_FIELDS = MappingProxyType(
    {
        "tenant_created": "name",
        "tenant_properties_set": "name",
        "tenant_deletion_started": "name",
        "tenant_deletion_aborted": "name",
        "tenant_deleted": "name",
        "namespace_created": "name",
        "namespace_properties_set": "name",
        "namespace_deletion_started": "name",
        "namespace_deletion_aborted": "name",
        "namespace_deleted": "name",
        "topic_created": "name",
        "topic_properties_set": "name",
        "topic_deleted": "name",
        "topic_name_pointed": "name",
        "topic_name_freed": "name",
        "topic_renamed": "name",
        "topic_partitions_grown": "name",
        "policy_set": "name",
        "policy_cleared": "name",
        "topic_assigned": "name",
        "topic_unassigned": "name",
        "broker_session_established": "broker_id",
        "broker_session_ended": "broker_id",
        "broker_drain_set": "broker_id",
        "broker_capacity_set": "broker_id",
        "broker_load_reported": "broker_id",
        "capacity_granted": "broker_id",
        "capacity_leased": "broker_id",
        "capacity_lease_released": "broker_id",
        "slots_adopted": None,
        "restore_marked": None,
        "slots_incoming": None,
        "slot_rows_copied": None,
        "slots_released": None,
        "slots_refused": None,
        "slots_reclaimed": None,
        "slot_rows_removed": None,
        "parent_gate_opened": "parent_name",
        "parent_gate_closed": "parent_name",
        "shadow_source_created": "name",
        "shadow_shard_recorded": "name",
        "shadow_source_held": "name",
        "shadow_source_removed": "name",
        "scalable_topic_created": "name",
        "scalable_topic_restored": "name",
        "scalable_topic_deleted": "name",
        "layout_change_planned": "name",
        "segment_children_ready": "name",
        "segment_sealed": "name",
        "layout_changed": "name",
        "layout_change_abandoned": "name",
        "segment_prune_postponed": "name",
        "segment_storage_removed": "name",
        "segment_loads_recorded": None,
        "auto_scale_decided": "name",
        "scalable_subscription_created": "name",
        "scalable_subscription_sought": "name",
        "scalable_subscription_ready": "name",
        "scalable_subscription_deletion_started": "name",
        "scalable_subscription_deleted": "name",
        "segment_drained": "name",
        "scalable_consumer_registered": "name",
        "scalable_consumer_left": "name",
        "segments_assigned": "name",
        "node_registered": None,
        "shard_map_changed": None,
        "slot_move_changed": None,
        "plan_changed": None,
        "broker_recorded": "broker_id",
        "lookup_window_recorded": None,
        "quotas_set": None,
        "configuration_set": None,
        "node_excluded": None,
        "shard_changed": None,
        "node_state_set": None,
    }
)
"""The field of each payload that holds its key, None for a payload that is about no name. Of a
rename it is the former name."""

EVENT_TYPES = frozenset(KEY_FIELDS)
"""Every payload that an event can have, by the name of its field."""


def event_key(event: Event) -> str:
    """Return the name that ``event`` is about, ``NO_KEY`` if it is about none.

    Of a rename it is the former name. An event of a later release has no key here.
    """
    payload = event.WhichOneof("payload")
    field = KEY_FIELDS.get(payload) if payload is not None else None
    if payload is None or field is None:
        return NO_KEY
    key: str = getattr(getattr(event, payload), field)
    return key


def event_keys(event: Event) -> tuple[str, ...]:
    """Return the names that ``event`` is about: two of a rename, else one, perhaps ``NO_KEY``."""
    if event.HasField("topic_renamed"):
        renamed = event.topic_renamed
        return renamed.name, renamed.new_name
    return (event_key(event),)
