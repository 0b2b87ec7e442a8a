import ast
from pathlib import Path

from nextgen.kernel.limits import bulk as bulk_limits
from nextgen.kernel.limits import cluster as limits
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.kernel.limits import snapshot as snapshot_limits
from nextgen.kernel.limits import stream as stream_limits

ASSIGNED = [
    (statement.targets[0].id, following)
    for module in (bulk_limits, limits, pulsar_limits, snapshot_limits, stream_limits)
    for body in [ast.parse(Path(module.__file__).read_text()).body]
    for statement, following in zip(body, [*body[1:], None], strict=True)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
]


def test_every_limit_says_its_reason() -> None:
    assert [name for name, following in ASSIGNED if not _gives_a_reason(following)] == []


def _gives_a_reason(following: ast.stmt | None) -> bool:
    if not isinstance(following, ast.Expr) or not isinstance(following.value, ast.Constant):
        return False
    return len(str(following.value.value)) > 20


def test_every_limit_is_positive() -> None:
    modules = (bulk_limits, limits, pulsar_limits, snapshot_limits, stream_limits)
    stated = {name: value for module in modules for name, value in vars(module).items()}
    assert all(stated[name] > 0 for name, _ in ASSIGNED)


def test_the_limits_fit_into_each_other() -> None:
    assert limits.SLOT_COUNT & (limits.SLOT_COUNT - 1) == 0, "slots are cut off by a mask"
    assert limits.SLOT_COUNT // limits.SHARDS_MAX >= 4
    assert limits.RECORD_BYTES_MAX <= limits.ENTRY_BYTES_MAX
    assert limits.ENTRY_BYTES_MAX <= limits.PROPOSE_QUEUE_BYTES_MAX
    assert limits.PAGE_ITEMS_DEFAULT <= limits.PAGE_ITEMS_MAX
    assert limits.PROPERTY_KEY_BYTES_MAX + limits.PROPERTY_VALUE_BYTES_MAX <= (
        limits.PROPERTIES_BYTES_MAX
    )
    assert (
        len("non-persistent://")
        + 2 * (limits.NAME_PART_BYTES_MAX + 1)
        + limits.TOPIC_LOCAL_NAME_BYTES_MAX
    ) < limits.TOPIC_TEXT_CHARACTERS_MAX


def test_what_discovery_holds_for_clients_fits_together():
    assert pulsar_limits.TOPIC_LIST_BYTES_MAX < pulsar_limits.PULSAR_MESSAGE_BYTES_MAX
    assert (
        pulsar_limits.DISCOVERY_LISTINGS_MAX
        < pulsar_limits.DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX
        < pulsar_limits.DISCOVERY_COMMANDS_WAITING_MAX
        < pulsar_limits.DIRECTORY_NAMES_WAITING_MAX
    )
    assert pulsar_limits.DIRECTORY_READS_PER_REQUEST_MAX <= limits.NAMES_PER_GET_MAX
    assert (
        pulsar_limits.DIRECTORY_READS_PER_REQUEST_MAX
        * (limits.PROPERTIES_BYTES_MAX + limits.TOPIC_TEXT_CHARACTERS_MAX)
        < limits.PAGE_BYTES_MAX
    )
    assert pulsar_limits.DIRECTORY_CREATES_PER_REQUEST_MAX <= limits.TOPICS_PER_CREATE_MAX
    assert pulsar_limits.PARTITION_COUNT_TTL_MS <= limits.ASSIGNMENT_TTL_MS
    assert pulsar_limits.PULSAR_CONNECTIONS_MAX < pulsar_limits.OPEN_FILES_MAX
    assert pulsar_limits.WORKER_RESTART_PAUSE_MS_MIN < pulsar_limits.WORKER_RESTART_PAUSE_MS_MAX
    assert pulsar_limits.WORKER_RESTART_PAUSE_MS_MAX < pulsar_limits.WORKER_RUN_COUNTS_MS
    assert pulsar_limits.WORKER_ANSWER_MS_MAX <= pulsar_limits.WORKER_REPORT_MS
    assert limits.SHARDS_MAX * 100 < pulsar_limits.WORKER_REPORT_BYTES_MAX


def test_change_streams_are_pinged_before_their_silence_ends_them():
    keepalive_ms = stream_limits.STREAM_CHANNEL_KEEPALIVE_MS
    assert limits.CHANNEL_KEEPALIVE_MS < keepalive_ms < stream_limits.ASSIGNMENT_REST_MS
    assert 2 * stream_limits.ASSIGNMENT_REST_MS < stream_limits.WATCH_REST_SILENCE_MS_MAX


def test_a_cached_answer_ends_before_a_shard_takes_it_for_ended():
    usable_ms = limits.ASSIGNMENT_TTL_MS - limits.WATCH_TTL_MARGIN_MS
    assert usable_ms == limits.LOOKUP_STALENESS_MS_MAX
    assert limits.ASSIGNMENT_UPDATE_MS * 2 < limits.LOOKUP_STALENESS_MS_MAX


def test_what_is_kept_of_a_log_and_of_snapshots_fits_together():
    chunks = snapshot_limits.SNAPSHOT_CHUNKS_IN_FLIGHT_MAX
    assert chunks <= snapshot_limits.SNAPSHOT_CHUNKS_WAITING_MAX
    assert snapshot_limits.SNAPSHOT_CHUNK_BYTES * chunks < limits.MESH_FRAME_BYTES_MAX
    assert snapshot_limits.SNAPSHOT_CHUNK_BYTES * chunks < snapshot_limits.SNAPSHOT_PROGRESS_BYTES
    assert snapshot_limits.LOG_TAIL_BYTES_MAX < snapshot_limits.SNAPSHOT_JOURNAL_BYTES
    assert snapshot_limits.SNAPSHOT_JOURNAL_BYTES >= limits.JOURNAL_SEGMENT_BYTES
    assert snapshot_limits.SNAPSHOT_ALIVE_MS < snapshot_limits.SNAPSHOT_SILENCE_MS_MAX
