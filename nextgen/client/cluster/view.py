"""A node's view of the cluster, merged from updates in any order.

Each field only moves forward: the higher version of the map, of quotas or of the configuration
wins, the higher term of a leader, the higher epoch of a broker, within an epoch the higher
revision; an ended session stays ended. So an update from a deposed cluster manager, even a full
one, cannot undo newer knowledge.

A difference between two versions of the map leads from each version between them to the later one.

A shard that gave slots away says to whom, before the map does (``learn_move``). That holds until a
map of a higher version comes, which decides again, or until a shard does not have what it was said
to get (``forget_moves``): moves may be taken back. A shard that is asked by an old map says it
again.

A renamed topic stays in the slot in its id. The shards say of which names the slot differs from the
one that the name hashes to (``learn_names``); the view remembers the latest of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence

from nextgen.client.wire.shard_map import led_shards
from nextgen.kernel.governance.service_settings import (
    DEFAULT_SETTINGS,
    ServiceSettings,
    lenient,
)
from nextgen.kernel.limits.cluster import ENDED_SESSIONS_MAX
from nextgen.kernel.limits.stream import MOVED_NAMES_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.slots import SlotRun, SlotTable
from protos.nextgen.v1.cluster_service_pb2 import (
    BrokerLoad,
    ClusterUpdate,
    LeaderReport,
    ShardMapDelta,
)
from protos.nextgen.v1.events_pb2 import (
    BrokerRecorded,
    ConfigurationSet,
    LoadReport,
    NodeRegistered,
    QuotasSet,
    ShardMapChanged,
    ShardPlacement,
    SlotMoveChanged,
)

_MOVE_PHASES = {
    "planned": 1,
    "stopping": 2,
    "refused": 3,
    "taken_back": 4,
    "adopted": 5,
    "done": 6,
}
"""How far a move of slots is. One that was adopted is not taken back, whatever was asked before."""
_MOVES_OVER = frozenset({"taken_back", "done"})


class ClusterView:
    """Shard map, leaders, brokers and nodes as known here. Read freely; only ``apply`` writes."""

    def __init__(self) -> None:
        self.slot_table: SlotTable | None = None
        """Which shard has which slot, moves that the map does not have yet included; None until a
        map is known."""
        self._map_table: SlotTable | None = None
        """The slots as the map has them."""
        self._shard_map: ShardMapChanged | None = None
        """The map as one message, None while it is not needed since the map changed."""
        self._placements: dict[int, ShardPlacement] = {}
        self._shard_ids: Sequence[int] = ()
        self._leaders: dict[int, LeaderReport] = {}
        self._brokers: dict[str, BrokerRecorded] = {}
        self._loads: dict[str, LoadReport] = {}
        self._nodes: dict[str, NodeRegistered] = {}
        self._manager_endpoints: tuple[str, ...] = ()
        self._ended_sessions: dict[str, None] = {}
        self._quotas: QuotasSet | None = None
        self._broker_quotas: dict[str, int] = {}
        self._tenant_quotas: dict[str, int] = {}
        self._configuration = ConfigurationSet()
        self._excluded_nodes: frozenset[str] = frozenset()
        self._settings = DEFAULT_SETTINGS
        self._slot_moves: dict[int, SlotMoveChanged] = {}
        self._moved_names: OrderedDict[str, int] = OrderedDict()
        """The slots of routing keys that are not found by their hashes, the latest last."""

    def __repr__(self) -> str:
        return (
            f"<ClusterView map={self.shard_map_version} shards={len(self._placements)} "
            f"leaders={len(self._leaders)} brokers={len(self._brokers)}>"
        )

    @property
    def shard_map_version(self) -> int:
        """Version of the shard map; 0 while there is none."""
        return 0 if self.slot_table is None else self.slot_table.version

    @property
    def map_table(self) -> SlotTable | None:
        """Which shard has which slot by the map alone; None until a map is known."""
        return self._map_table

    @property
    def placements(self) -> Mapping[int, ShardPlacement]:
        """By shard id: which nodes hold replicas, the preferred leader first."""
        return self._placements

    @property
    def shard_ids(self) -> Sequence[int]:
        """The shards of the map, ascending."""
        return self._shard_ids

    @property
    def shard_map(self) -> ShardMapChanged | None:
        """The map as one message, which MUST NOT be changed; None while there is none."""
        if self._shard_map is None and self._map_table is not None:
            self._shard_map = ShardMapChanged(
                version=self._map_table.version,
                slot_owners=self._map_table.to_bytes(),
                shards=[self._placements[shard_id] for shard_id in self._shard_ids],
            )
        return self._shard_map

    def has_led(self, shard_id: int) -> bool:
        """Return whether the shard is known to have had a leader, at any time."""
        placement = self._placements.get(shard_id)
        return (placement is not None and placement.has_led) or shard_id in self._leaders

    @property
    def leaders(self) -> Mapping[int, LeaderReport]:
        """By shard id: the leader of the highest term that is known."""
        return self._leaders

    @property
    def brokers(self) -> Mapping[str, BrokerRecorded]:
        """By broker id: the session of the highest epoch, whether live or ended."""
        return self._brokers

    def load(self, session_id: str) -> LoadReport | None:
        """Return the last load pushed for a live session, None if there was none."""
        return self._loads.get(session_id)

    @property
    def broker_quotas(self) -> Mapping[str, int]:
        """By broker id: units that may be leased out; others have no quota."""
        return self._broker_quotas

    @property
    def tenant_quotas(self) -> Mapping[str, int]:
        """By tenant: units that it may have assigned; others have no quota."""
        return self._tenant_quotas

    @property
    def configuration(self) -> ConfigurationSet:
        """The overrides of service-level settings; version 0 if there never were any."""
        return self._configuration

    @property
    def excluded_nodes(self) -> frozenset[str]:
        """Node ids that no process of the cluster accepts any more. None ever leaves."""
        return self._excluded_nodes

    @property
    def settings(self) -> ServiceSettings:
        """The service-level settings in force."""
        return self._settings

    @property
    def nodes(self) -> Mapping[str, NodeRegistered]:
        """By node id: every node that has ever joined, with its addresses."""
        return self._nodes

    @property
    def slot_moves(self) -> Mapping[int, SlotMoveChanged]:
        """The moves of slots that have not ended, by move id, as the cluster manager pushed them.
        Decisions about slots rest on the shards' logs alone."""
        return self._slot_moves

    @property
    def manager_endpoints(self) -> tuple[str, ...]:
        """Endpoints of all replicas of the cluster manager, as it reports them itself."""
        return self._manager_endpoints

    def shard_for_key(self, routing_key: str) -> int | None:
        """Return the shard that has the slot of ``routing_key``, None while there is no map."""
        if self.slot_table is None:
            return None
        return self.slot_table.owners[self.slot_of_key(routing_key)]

    def slot_of_key(self, routing_key: str) -> int:
        """Return the slot by which the topic called so is found, as far as is known here."""
        if self._moved_names:
            moved = self._moved_names.get(routing_key)
            if moved is not None:
                return moved
        return slot_of(routing_key)

    def is_moved(self, routing_key: str) -> bool:
        """Return whether a key is known to be found by another slot than its own."""
        return routing_key in self._moved_names

    def leader_endpoint(self, shard_id: int) -> str | None:
        """Return host:port of the shard's leader, None if none is known."""
        leader = self._leaders.get(shard_id)
        return leader.grpc if leader is not None else None

    def leader_term(self, shard_id: int) -> int:
        """Return the term of the known leader, 0 if none is known."""
        leader = self._leaders.get(shard_id)
        return leader.term if leader is not None else 0

    def replica_endpoints(self, shard_id: int) -> list[str]:
        """Return host:port of every replica whose address is known, in preference order."""
        placement = self._placements.get(shard_id)
        if placement is None:
            return []
        nodes = (self._nodes.get(node_id) for node_id in placement.replicas)
        return [node.grpc for node in nodes if node is not None]

    def has_session_ended(self, broker_id: str, session_id: str) -> bool:
        """Return whether the directory knows that this broker session is over.

        An unknown session counts as not ended: it may be about to be recorded.
        """
        if session_id in self._ended_sessions:
            return True
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.session_id == session_id and not broker.is_live

    def learn_move(
        self, ranges: Sequence[tuple[int, int]], shard_id: int, shard_map_version: int
    ) -> bool:
        """Note that the slots of ``ranges`` are at ``shard_id``, as their former shard said.

        ``shard_map_version`` is that of the map by which it was asked: a later map decides better.
        Return whether it is news. A shard that the map does not have is none: a map with it comes.
        """
        table = self.slot_table
        if table is None or shard_id not in self._placements or shard_map_version < table.version:
            return False
        runs = [SlotRun(first, last, shard_id) for first, last in ranges]
        moved = table.with_runs(table.version, runs)
        if moved == table:
            return False
        self.slot_table = moved
        return True

    def forget_moves(self) -> None:
        """Go by the map again: a shard does not have slots that its former one gave it."""
        self.slot_table = self._map_table

    def learn_names(self, moved_names: Mapping[str, int]) -> None:
        """Note the slots by which keys are found, as a shard said. A key's own slot means that it
        is in no other. The latest ``MOVED_NAMES_MAX`` others are remembered."""
        for routing_key, slot in moved_names.items():
            self._moved_names.pop(routing_key, None)
            if slot != slot_of(routing_key):
                self._moved_names[routing_key] = slot
        while len(self._moved_names) > MOVED_NAMES_MAX:
            self._moved_names.popitem(last=False)

    def misses_changes(self, update: ClusterUpdate) -> bool:
        """Return whether ``update`` has a difference to a later map than the one known here.

        It cannot be merged: the whole map must be fetched.
        """
        return (
            update.HasField("map_delta") and update.map_delta.from_version > self.shard_map_version
        )

    def apply(self, update: ClusterUpdate) -> None:
        """Merge ``update``: see the module's rules.

        Raises:
            ValueError: The slots of its map are none, or ``misses_changes``.
        """
        self._apply_map(update)
        if update.full:
            self._nodes = {}
        for node in update.nodes:
            self._nodes[node.node_id] = node
        for leader in update.leaders:
            self._apply_leader(leader)
        for broker in update.brokers:
            self._apply_broker(broker)
        for load in update.loads:
            self._apply_load(load)
        if update.HasField("quotas"):
            self._apply_quotas(update.quotas)
        if update.HasField("configuration"):
            self._apply_configuration(update.configuration)
        self._apply_slot_moves(update)
        self._excluded_nodes |= frozenset(update.excluded_nodes)
        if update.manager_endpoints:
            self._manager_endpoints = tuple(update.manager_endpoints)

    def to_update(self) -> ClusterUpdate:
        """Return the whole view as one full update, without loads, which are soon out of date."""
        return ClusterUpdate(
            full=True,
            shard_map=self.shard_map,
            leaders=[self._leaders[shard_id] for shard_id in sorted(self._leaders)],
            brokers=[self._brokers[broker_id] for broker_id in sorted(self._brokers)],
            nodes=[self._nodes[node_id] for node_id in sorted(self._nodes)],
            manager_endpoints=self._manager_endpoints,
            quotas=self._quotas,
            configuration=self._configuration if self._configuration.version else None,
            excluded_nodes=sorted(self._excluded_nodes),
        )

    def _apply_map(self, update: ClusterUpdate) -> None:
        if update.HasField("shard_map"):
            self._apply_shard_map(update.shard_map)
        if update.HasField("map_delta"):
            self._apply_delta(update.map_delta)

    def _apply_shard_map(self, shard_map: ShardMapChanged) -> None:
        if shard_map.version <= self.shard_map_version:
            return
        self._set_table(SlotTable.from_bytes(shard_map.version, shard_map.slot_owners))
        self._shard_map = shard_map
        # Maps of earlier releases do not say of each shard whether it has had a leader.
        led = led_shards(shard_map)
        self._set_placements({each.shard_id: _with_led(each, led) for each in shard_map.shards})

    def _apply_delta(self, delta: ShardMapDelta) -> None:
        if delta.version <= self.shard_map_version:
            return
        table = self._map_table
        if table is None or delta.from_version > table.version:
            raise ValueError(
                f"a difference to version {delta.from_version} of the map, "
                f"{self.shard_map_version} is known here"
            )
        runs = (SlotRun(run.first, run.last, run.shard_id) for run in delta.slots)
        self._set_table(table.with_runs(delta.version, runs))
        self._shard_map = None
        if delta.changed or delta.removed:
            placements = dict(self._placements)
            placements.update((placement.shard_id, placement) for placement in delta.changed)
            for shard_id in delta.removed:
                placements.pop(shard_id, None)
            self._set_placements(placements)

    def _set_table(self, table: SlotTable) -> None:
        self._map_table = self.slot_table = table

    def _set_placements(self, placements: dict[int, ShardPlacement]) -> None:
        self._placements = placements
        self._shard_ids = sorted(placements)

    def _apply_leader(self, leader: LeaderReport) -> None:
        if leader.term > self.leader_term(leader.shard_id):
            self._leaders[leader.shard_id] = leader

    def _apply_broker(self, broker: BrokerRecorded) -> None:
        known = self._brokers.get(broker.broker_id)
        if known is not None and broker.epoch < known.epoch:
            self._remember_ended(broker.session_id)
            return
        if known is not None and broker.epoch > known.epoch:
            self._remember_ended(known.session_id)
        elif known is not None and not _follows(known, broker):
            return
        self._brokers[broker.broker_id] = broker
        if not broker.is_live:
            self._remember_ended(broker.session_id)

    def _apply_load(self, pushed: BrokerLoad) -> None:
        broker = self._brokers.get(pushed.broker_id)
        # A session that ended, or is not known yet: its next report comes within a minute.
        if broker is None or not broker.is_live or broker.session_id != pushed.session_id:
            return
        known = self._loads.get(pushed.session_id)
        if known is None or known.measured_at_ms <= pushed.load.measured_at_ms:
            self._loads[pushed.session_id] = pushed.load

    def _apply_quotas(self, quotas: QuotasSet) -> None:
        if self._quotas is None or quotas.version > self._quotas.version:
            self._quotas = quotas
            self._broker_quotas = {each.broker_id: each.units for each in quotas.brokers}
            self._tenant_quotas = {each.tenant: each.units for each in quotas.tenants}

    def _apply_configuration(self, configuration: ConfigurationSet) -> None:
        if configuration.version > self._configuration.version:
            self._configuration = configuration
            self._settings = lenient({each.name: each.value for each in configuration.settings})

    def _apply_slot_moves(self, update: ClusterUpdate) -> None:
        if update.full:
            named = {move.move_id for move in update.slot_moves}
            self._slot_moves = {
                move_id: move for move_id, move in self._slot_moves.items() if move_id in named
            }
        for move in update.slot_moves:
            known = self._slot_moves.get(move.move_id)
            if known is not None and _rank(move) < _rank(known):
                continue
            if move.phase in _MOVES_OVER:
                self._slot_moves.pop(move.move_id, None)
            else:
                self._slot_moves[move.move_id] = move

    def _remember_ended(self, session_id: str) -> None:
        self._loads.pop(session_id, None)
        self._ended_sessions[session_id] = None
        if len(self._ended_sessions) > ENDED_SESSIONS_MAX:
            del self._ended_sessions[next(iter(self._ended_sessions))]


def _with_led(placement: ShardPlacement, led: Container[int]) -> ShardPlacement:
    has_led = placement.shard_id in led
    if placement.has_led is has_led:
        return placement
    changed = ShardPlacement()
    changed.CopyFrom(placement)
    changed.has_led = has_led
    return changed


def _rank(move: SlotMoveChanged) -> int:
    return _MOVE_PHASES.get(move.phase, 0)


def _follows(known: BrokerRecorded, pushed: BrokerRecorded) -> bool:
    """Return whether ``pushed`` is at least as new as ``known``, of the same session."""
    return known.is_live and (not pushed.is_live or pushed.revision >= known.revision)
