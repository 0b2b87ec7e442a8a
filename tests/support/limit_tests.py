"""Which tests try a limit that their names do not contain, and which limits have no test yet."""

from __future__ import annotations

TESTED_BY: dict[str, tuple[str, ...]] = {
    "ACKNOWLEDGEMENT_INTERVALS_PER_REPORT_MAX": ("test_a_report_has_a_bound",),
    "ACKNOWLEDGEMENT_WATCHERS_MAX": (
        "test_one_auditor_more_than_allowed_is_refused_until_another_leaves",
    ),
    "BALANCE_GRACE_SECONDS_MAX": ("test_a_number_has_bounds",),
    "BALANCE_INTERVAL_SECONDS_MAX": ("test_a_number_has_bounds",),
    "BALANCE_MOVES_PER_MINUTE_MAX": ("test_a_number_has_bounds",),
    "BULK_IN_FLIGHT_MAX": ("test_every_name_is_created_with_a_few_requests_at_a_time",),
    "BULK_NAMES_BYTES_MAX": (
        "test_a_request_has_so_many_bytes_at_most_and_its_record_fits",
        "test_blocks_have_so_many_bytes_at_most",
    ),
    "CHUNK_OWNERS_MAX": ("test_chunked_messages_that_are_half_sent_are_remembered_up_to_a_limit",),
    "CHUNK_UUID_CHARACTERS_MAX": (
        "test_a_chunked_message_whose_id_is_too_long_to_be_remembered_is_none",
    ),
    "CLUSTER_NODES_MAX": ("test_the_number_of_nodes_has_a_limit_that_known_nodes_do_not_meet",),
    "COMPARED_MAX": ("test_no_choice_breaks_a_rule_and_one_is_made_whenever_that_can_be",),
    "CONNECTION_PENDING_BYTES_MAX": (
        "test_a_connection_with_too_much_under_way_is_not_read",
        "test_what_is_under_way_counts_though_it_is_small",
    ),
    "CONNECTION_REQUESTS_MAX": ("test_a_client_that_asks_for_too_much_at_a_time_is_not_read",),
    "CONSUMER_PERMITS_MAX": (
        "test_a_flow_beyond_all_measure_ends_the_connection",
        "test_permits_have_a_limit",
    ),
    "CONSUMER_UNACKED_MAX": (
        "test_a_consumer_with_too_much_unacknowledged_gets_no_more_until_half_is",
    ),
    "COPY_BYTES_MAX": ("test_an_answer_takes_no_more_rows_behind_so_many_bytes",),
    "COPY_ROWS_MAX": ("test_an_answer_has_so_many_rows_at_most",),
    "CURSOR_HOLES_MAX": ("test_a_cursor_full_of_holes_is_not_large",),
    "DELAYED_ENTRIES_MAX": ("test_there_is_room_for_so_many",),
    "DIRECTORY_NAMES_WAITING_MAX": ("test_questions_that_wait_are_bounded",),
    "DISCOVERY_COMMANDS_WAITING_MAX": (
        "test_all_commands_are_bounded_together_with_requests_over_http",
    ),
    "DISCOVERY_LISTINGS_MAX": ("test_listings_have_a_bound_of_their_own",),
    "DISPATCH_BYTES_MAX": ("test_a_turn_is_bounded_in_bytes_too",),
    "DISPATCH_ENTRIES_MAX": ("test_a_subscription_with_much_to_send_does_not_keep_others_waiting",),
    "EFFECTIVE_WAITS_MAX": ("test_the_writes_that_wait_are_bounded",),
    "ENDED_SESSIONS_MAX": ("test_ended_sessions_are_remembered_up_to_the_limit",),
    "ENTRY_BYTES_MAX": ("test_an_entry_stays_below_its_limit_in_bytes",),
    "ENTRY_RECORDS_MAX": ("test_an_entry_holds_so_many_records_and_no_more",),
    "EPOCH_JUMP_MAX": (
        "test_an_epoch_too_far_ahead_is_taken_for_damage",
        "test_an_owner_whose_ledger_knows_later_epochs_gets_the_next_one",
    ),
    "EVENTS_SILENT_SLICES_MAX": (
        "test_progress_is_reported_during_a_long_stretch_without_a_match",
    ),
    "EXCHANGE_IN_FLIGHT_MAX": ("test_one_more_than_may_be_in_flight_is_refused",),
    "EXPORT_FILE_ROWS_MAX": ("test_a_file_ends_at_its_limit_of_rows",),
    "EXPORT_FILES_MAX": ("test_a_manifest_that_is_full_takes_no_more_files",),
    "FEED_ITEM_BYTES_MAX": ("test_an_update_has_so_many_bytes",),
    "FEED_SOURCES_MAX": ("test_sources_of_a_stream_and_shadows_of_a_source_have_limits",),
    "FEED_STREAMS_MAX": ("test_streams_have_a_limit",),
    "FED_BYTES_MAX": ("test_much_at_a_time_is_announced_and_not_sent",),
    "FED_ENTRIES_MAX": ("test_many_entries_at_a_time_are_announced_and_not_sent",),
    "HANDOVERS_IN_FLIGHT_MAX": ("test_only_so_many_are_handed_over_at_a_time",),
    "HELD_OBJECTS_PER_MESSAGE_MAX": ("test_a_page_of_what_a_broker_holds_has_so_many_objects",),
    "HISTORY_LINE_BYTES_MAX": ("test_a_line_may_be_so_long_and_no_longer",),
    "IDLE_UNLOAD_SECONDS_MAX": ("test_a_number_has_bounds",),
    "JOIN_OUTBOX_UPDATES_MAX": (
        "test_the_outbox_has_a_limit",
        "test_a_slow_node_is_dropped_and_disturbs_nobody",
    ),
    "JOURNAL_PENDING_BYTES_MAX": ("test_too_much_that_waits_for_the_disk_is_refused",),
    "LEARNER_LAG_ENTRIES_MAX": ("test_a_learner_that_has_not_caught_up_is_not_promoted",),
    "LEDGER_RECENT_BYTES_MAX": ("test_the_oldest_rounds_of_all_units_are_forgotten_first",),
    "LOADS_PER_UPDATE_MAX": ("test_many_loads_travel_in_parts",),
    "LOAD_RATE_MAX": (
        "test_a_load_at_the_limit_can_be",
        "test_a_load_that_cannot_be_is_refused_and_named",
    ),
    "LOG_CUT_SEGMENTS_MAX": ("test_files_go_a_few_at_a_time",),
    "LOG_PINS_MAX": (
        "test_so_many_pins_there_are_and_not_one_more",
        "test_there_are_so_many_pins_and_not_one_more",
    ),
    "LOG_READERS_MAX": ("test_there_are_so_many_named_readers_and_not_one_more",),
    "LOOKUP_NAMES_WAITING_MAX": ("test_too_many_names_waiting_are_refused",),
    "METADATA_LOOSE_WATCHES_MAX": ("test_loose_watches_are_put_together_and_lose_nothing",),
    "METRIC_SERIES_PER_PROCESS_MAX": ("test_series_of_a_process_are_bounded_by_its_shards",),
    "METRIC_SERIES_PER_SHARD_MAX": ("test_series_of_a_process_are_bounded_by_its_shards",),
    "NODE_LOST_SECONDS_MAX": ("test_the_silence_of_a_lost_node_has_a_bound",),
    "NAMESPACES_WATCHED_MAX": ("test_the_namespaces_used_longest_ago_are_followed_no_more",),
    "PINNED_LOG_BYTES_MAX": ("test_pins_keep_so_many_bytes_and_not_one_file_more",),
    "PLACEMENT_NAMES_MAX": (
        "test_what_makes_sense_is_accepted_up_to_every_limit",
        "test_what_makes_no_sense_is_refused_by_the_name_of_its_field",
    ),
    "POLICIES_BYTES_MAX": ("test_the_largest_policies_are_stored_and_larger_ones_refused",),
    "PREPARED_UNITS_MAX": ("test_so_many_are_kept_in_mind_and_the_oldest_goes",),
    "PREPARES_PER_REQUEST_MAX": ("test_only_so_many_are_prepared_together",),
    "PRODUCERS_PER_TOPIC_MAX": ("test_a_topic_has_so_many_producers_and_no_more",),
    "PROPERTIES_BYTES_MAX": ("test_properties_have_limits",),
    "PROPOSE_QUEUE_BYTES_MAX": ("test_a_full_queue_refuses_and_keeps_what_it_has",),
    "PUBLIC_WATCH_QUEUE_BYTES_MAX": (
        "test_a_snapshot_waits_for_its_reader_and_is_no_reason_to_end_it",
        "test_what_waits_for_a_watcher_is_bounded_in_bytes",
    ),
    "PUBLIC_WATCH_QUEUE_UPDATES_MAX": (
        "test_a_watcher_that_does_not_read_is_ended_and_the_others_are_not",
    ),
    "PULSAR_MESSAGE_BYTES_MAX": ("test_connect_is_answered_with_the_server_version",),
    "PULSAR_REQUESTS_IN_FLIGHT_MAX": (
        "test_requests_up_to_the_limit_wait_and_one_more_is_refused",
    ),
    "PULSAR_WRITE_BUFFER_BYTES_MAX": ("test_a_client_that_never_reads_is_dropped_at_the_limit",),
    "QUOTA_FILE_BYTES_MAX": ("test_a_file_has_a_bound",),
    "QUOTA_NAMES_BYTES_MAX": ("test_names_have_a_bound_together",),
    "READ_REQUESTS_MAX": ("test_reads_beyond_the_limit_are_refused",),
    "REBALANCE_MOVES_NAMED_MAX": ("test_an_answer_names_a_thousand_moves_and_counts_all",),
    "REPLICA_CHANGES_MAX": ("test_a_plan_begins_a_bounded_number_of_changes",),
    "REPLICA_TRANSFERS_MAX": (
        "test_bounds_count_the_leader_that_sends",
        "test_no_more_transfers_run_at_a_time_than_are_allowed",
    ),
    "REPLICA_TRANSFERS_PER_NODE_MAX": (
        "test_bounds_count_the_leader_that_sends",
        "test_no_more_transfers_run_at_a_time_than_are_allowed",
    ),
    "REDELIVERY_COUNTS_MAX": ("test_counts_beyond_the_limit_push_out_the_oldest",),
    "RELEASE_EVENTS_MAX": ("test_slots_are_not_released_while_the_log_has_so_many_events_more",),
    "RELEASE_KEYS_MAX": ("test_slots_are_released_when_few_states_have_changed_behind_the_copy",),
    "RING_POINTS_MAX": ("test_the_ring_stays_small_however_many_nodes",),
    "SCHEMA_VERSIONS_MAX": ("test_the_number_of_versions_has_a_limit",),
    "SHARD_PENDING_RECORDS_MAX": ("test_a_view_that_does_not_follow_slows_the_leader_down",),
    "SNAPSHOT_CHUNKS_IN_FLIGHT_MAX": (
        "test_as_many_chunks_are_in_flight_as_may_be_and_not_one_more",
    ),
    "SNAPSHOT_REWINDS_MAX": ("test_a_receiver_that_always_wants_another_chunk_is_given_up",),
    "LOG_TAIL_BYTES_MAX": ("test_no_more_than_so_many_bytes_that_the_view_has_stay",),
    "SUBSCRIPTIONS_PER_TOPIC_MAX": ("test_a_topic_has_so_many_subscriptions_and_no_more",),
    "SUBSCRIPTION_CONSUMERS_MAX": ("test_consumers_have_a_limit",),
    "SUBSCRIPTION_PROPERTIES_BYTES_MAX": ("test_the_properties_of_a_subscription_have_a_limit",),
    "SUBSCRIBERS_COUNTED_MAX": ("test_so_many_subscribers_are_counted",),
    "SUBSCRIPTION_UNACKED_MAX": ("test_a_subscription_with_too_much_unacknowledged_pauses",),
    "TOPIC_LIST_BYTES_MAX": ("test_a_listing_is_as_long_as_one_answer",),
    "TOPIC_LOCAL_NAME_BYTES_MAX": ("test_a_local_name_may_be_as_long_as_the_limit",),
    "TOPIC_STATS_NAMES_MAX": ("test_too_many_topics_at_once_are_refused",),
    "TOPIC_TEXT_CHARACTERS_MAX": (
        "test_a_prefix_is_bounded",
        "test_a_text_of_absurd_length_is_refused_unread",
    ),
    "VOLATILE_BYTES_MAX": ("test_what_is_not_persistent_has_a_limit_and_ends_with_the_topic",),
    "WATCHES_PER_STREAM_MAX": (
        "test_a_stream_has_so_many_watches",
        "test_watches_streams_and_names_are_bounded",
    ),
    "WATCH_BACKLOG_EVENTS_MAX": (
        "test_a_watch_that_is_a_little_behind_catches_up_on_the_shared_stream",
        "test_a_watch_that_is_far_behind_catches_up_on_a_stream_of_its_own",
    ),
    "WATCH_HUB_EVENTS_MAX": ("test_a_hub_that_cannot_keep_up_leaves_the_rest_to_the_log",),
    "WATCH_NAMES_MAX": ("test_names_are_bounded",),
    "WATCH_STREAMS_PER_SHARD_MAX": ("test_watches_streams_and_names_are_bounded",),
}
"""Older tests at a bound and at one more. The names of new ones contain the bound's."""

_UNTESTED_BY_REASON = {
    "a queue's size: a full one stops the reading of its stream, and gRPC holds the sender back": (
        "BROKER_ARRIVALS_MAX",
    ),
    "a semaphore's size: transfers beyond it wait, and a test would need three groups' snapshots": (
        "SNAPSHOT_TRANSFERS_MAX",
    ),
}

UNTESTED = {name: reason for reason, names in _UNTESTED_BY_REASON.items() for name in names}
"""Bounds without a test at the limit, and why. Take out what gets one; put none in."""

UNTESTED_MAX = 2
"""Only gets smaller."""
