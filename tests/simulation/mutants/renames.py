"""The guards of renames: one topic a name, found under its names, and nothing of it lost."""

from __future__ import annotations

from brokers.domain.former_names import FormerNames
from brokers.domain.holding import Holding
from brokers.service.topics.open_units import OpenUnits
from discovery.domain import topic_rename
from discovery.service.admin.inventory import InventoryService as DiscoveryInventory
from discovery.service.watches import shown_events
from nextgen.backup import objects, restore
from nextgen.client import watch_model
from nextgen.client.discovery.known_map import KnownMap
from nextgen.client.permissions.known_object import KnownObject
from nextgen.client.routing.router import ShardRouter
from nextgen.client.topic_lists.tellers import Tellers
from shards.assignment.unit_planner import UnitPlanner
from shards.domain.slot_moves import keys
from shards.inventory.renames.pointers import NamePointers
from shards.inventory.renames.renaming import TopicRenaming
from shards.moves import recent_moves
from shards.moves.move_finisher import MoveFinisher
from shards.node import asked_names
from shards.node.shard_leader import ShardLeader
from shards.sessions.metadata_watch import MetadataWatch
from shards.state.topic_names import TopicNames
from shards.watches import changed_objects
from tests.simulation.mutants.mutant import Edit, Mutant

_RENAMES = "tests/unit/shards/inventory/renames/"
_RENAMING = (_RENAMES + "test_renaming.py",)
_POINTERS = (_RENAMES + "test_pointers.py",)
_HISTORIES = (_RENAMES + "test_histories.py", _RENAMES + "test_crashes.py")
_LEADER = ("tests/unit/shards/node/test_renamed_topics.py",)
_SESSIONS = ("tests/unit/shards/sessions/test_renamed_topics.py",)
_EFFECTIVE = ("tests/unit/shards/watches/test_effective_writes.py",)
_BROKER = ("tests/unit/brokers/service/topics/test_renamed_topics.py",)
_ROUTING = ("tests/integration/client/test_moved_slots.py",)
_PERMISSIONS = ("tests/unit/client/permissions/test_renamed_topics.py",)
_TELLERS = ("tests/unit/client/topic_lists/test_tellers.py",)
_BACKUP = ("tests/unit/backup/test_backup_files.py",)

MUTANTS = (
    # Names -----------------------------------------------------------------------------------
    Mutant(
        "gives-a-name-away-while-a-rename-to-it-is-pending",
        "RN3",
        "the home says of a name that its topic is about to get it",
        (
            Edit(
                TopicRenaming,
                "use",
                "if self._pending.get(request.name) == request.topic_id:",
                "if False:",
            ),
        ),
        (*_POINTERS, *_RENAMING, *_HISTORIES),
    ),
    Mutant(
        "renames-two-topics-to-one-name",
        "RN1",
        "one rename to a name is under way at a time",
        (Edit(TopicRenaming, "rename", "if new_name in self._pending:", "if False:"),),
        (*_POINTERS, *_HISTORIES),
    ),
    Mutant(
        "relies-on-what-was-true-before-a-pointer-came",
        "RN3",
        "what a home said about a name is void once a topic is about to get it",
        (
            Edit(
                NamePointers,
                "admit",
                " or use.version != self._version(pointer.name)",
                "",
            ),
        ),
        (*_POINTERS, *_HISTORIES),
    ),
    Mutant(
        "notes-the-version-of-a-pointer-behind-the-answer",
        "RN3",
        "the version of a pointer is noted before its home is asked",
        (
            Edit(
                NamePointers,
                "ask",
                "return _Use(pointer, version, answer)",
                "return _Use(pointer, self._version(pointer.name), answer)",
            ),
        ),
        (*_POINTERS, *_HISTORIES),
    ),
    Mutant(
        "forgets-versions-of-pointers",
        "RN3",
        "a forgotten version of a pointer counts as the highest that was forgotten",
        (
            Edit(
                NamePointers,
                "note_pointed",
                "self._forgotten = self._versions.popitem(last=False)[1]",
                "self._versions.popitem(last=False)",
            ),
        ),
        _POINTERS,
    ),
    Mutant(
        "gives-a-former-name-no-rest",
        "RN3",
        "a former name rests for as long as clocks of leaders may differ",
        (Edit(TopicRenaming, "use", "former.until_ms + FORMER_NAME_REST_MS", "former.until_ms"),),
        _RENAMING,
    ),
    Mutant(
        "renames-a-topic-that-was-renamed-meanwhile",
        "RN1",
        "a rename is decided by the topic as it is when its name is reserved",
        (
            Edit(
                TopicRenaming,
                "_decide",
                "before = self._topic(command)",
                "before = self._state.reads.load_topic(command.name.base_text)",
            ),
        ),
        (*_RENAMING, *_HISTORIES),
    ),
    Mutant(
        "follows-former-names-for-ever",
        "RN2",
        "a former name leads to its topic until its time is over",
        (Edit(TopicNames, "_leads", "self._clock_ms() < former.until_ms", "True"),),
        (*_RENAMING, *_HISTORIES),
    ),
    Mutant(
        "moves-a-renamed-topic-with-its-name",
        "RN2",
        "a topic goes with the slot in its id, whatever it is called",
        (
            Edit(
                keys,
                "slot_of_change",
                "if kind in _WITH_HOMES and is_id(topic_id):",
                "if False:",
            ),
        ),
        _HISTORIES,
    ),
    Mutant(
        "calls-a-topic-absent-that-was-just-renamed",
        "RN4",
        "a lookup under way asks again for a topic that was renamed",
        (
            Edit(
                UnitPlanner,
                "_check_served",
                "if topic is None and self._state.names.was_renamed(name):",
                "if False:",
            ),
        ),
        _LEADER,
    ),
    Mutant(
        "sends-on-for-ever",
        "RN4",
        "of a request that came back the home is asked before it is sent on again",
        (
            Edit(
                NamePointers,
                "check",
                "[each for each in elsewhere if self._was_sent_on(each, now)]",
                "[]",
            ),
        ),
        _RENAMING,
    ),
    Mutant(
        "calls-a-name-free-that-a-topic-is-about-to-get",
        "RN4",
        "a request for a name that is being given waits for the outcome",
        (Edit(NamePointers, "_frees", "use.answer.use == NAME_USE_PENDING", "False"),),
        _POINTERS,
    ),
    Mutant(
        "learns-no-names",
        "RN5",
        "a router goes where a shard says that a name leads",
        (Edit(ShardRouter, "_follows", "view.learn_names(error.moved_names)", "pass"),),
        _ROUTING,
    ),
    Mutant(
        "reads-a-renamed-topic-at-its-names-position",
        "RN5",
        "a client reads a renamed topic by no position of another shard",
        (
            Edit(
                KnownMap,
                "wait_shard",
                "return shard_id if self._elsewhere.get(routing_key, shard_id) == shard_id "
                "else None",
                "return shard_id",
            ),
        ),
        ("tests/unit/client/discovery/test_known_map.py",),
    ),
    Mutant(
        "admits-a-shadow-by-a-former-name",
        "RN6",
        "a shadow names its source as it is called",
        (
            Edit(
                asked_names,
                "_admit",
                "_names(request, as_asked=False)",
                "_names(request, as_asked=True)",
            ),
            Edit(
                asked_names,
                "_admit",
                "_places(admitted, as_asked=False)",
                "_places(admitted, as_asked=True)",
            ),
        ),
        _LEADER,
    ),
    # With slots that move --------------------------------------------------------------------
    Mutant(
        "releases-a-slot-whose-renamed-units-move",
        "RN7",
        "a slot stays while a unit of a topic with its home there is in a move",
        (
            Edit(
                ShardLeader,
                "_slots_busy",
                "partial(is_at_home_in, ranges)",
                "partial(is_of_slots, ranges)",
            ),
        ),
        _LEADER,
    ),
    Mutant(
        "takes-a-write-for-effective-by-its-topics-name",
        "RN7",
        "a write to a renamed topic waits for subscribers of its home slot's last shard",
        (
            Edit(
                changed_objects,
                "slots_changed_by",
                "None if topic_of(parsed) is None else slot_of_unit(result.id)",
                "None",
            ),
        ),
        (*_EFFECTIVE, *_LEADER),
    ),
    Mutant(
        "moves-a-renamed-unit-while-leases-elsewhere-last",
        "RN7",
        "a move of a renamed topic's unit waits for leases at its home slot's last shard",
        (
            Edit(
                MoveFinisher,
                "release",
                "{slot for owner in owners if (slot := slot_of_unit(owner.topic_id)) is not None}",
                "()",
            ),
        ),
        _LEADER,
    ),
    # At the brokers --------------------------------------------------------------------------
    Mutant(
        "opens-a-ledger-by-two-names",
        "RB2",
        "the new name is opened when the old one has closed",
        (
            Edit(
                OpenUnits,
                "of_either",
                "(self.by_name.get(name), self._by_key.get(key))",
                "(self.by_name.get(name),)",
            ),
        ),
        _BROKER,
    ),
    Mutant(
        "serves-a-former-name-for-ever",
        "RB3",
        "a broker serves a topic by a former name until the grace is over",
        (Edit(FormerNames, "topic_id", "topic_id if unix_ms < until_ms else", "topic_id or"),),
        _BROKER,
    ),
    Mutant(
        "keeps-the-old-name-of-an-assignment",
        "RB2",
        "an assignment under the new name takes the old one away",
        (Edit(Holding, "_assign", "self._drop_name(held)", "pass"),),
        (*_BROKER, "tests/unit/brokers/domain/test_holding.py"),
    ),
    Mutant(
        "follows-a-topic-by-its-old-name",
        "RB4",
        "a manager follows a renamed topic by its new name",
        (
            Edit(
                MetadataWatch,
                "_bring",
                "if state.version == sent.version and state.name != sent.name:",
                "if False:",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "follows-what-a-broker-was-sent-by-its-old-name",
        "RB4",
        "the next manager follows the name that the broker reports",
        (
            Edit(
                MetadataWatch,
                "take_report",
                "known.name != each.name",
                "False",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "follows-a-later-topic-where-the-earlier-one-is",
        "RB4",
        "a later topic of a former name is followed at its own home",
        (
            Edit(
                MetadataWatch,
                "_is_of_another",
                "return watched.home.shard_id != self._home_of(sent)",
                "return False",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "removes-messages-of-a-topic-that-was-renamed-since",
        "RB5",
        "a topic that is there by another name is not deleted",
        (
            Edit(
                MoveFinisher,
                "_deleted",
                "deleted -= self._renamed([name.base_text for name in names])",
                "pass",
            ),
        ),
        ("tests/unit/shards/moves/test_deleted_units.py",),
    ),
    Mutant(
        "finishes-a-deletion-before-a-rename",
        "RB5",
        "a deletion that a rename follows has failed",
        (
            Edit(
                recent_moves,
                "_rename",
                "if each.topic_id == renamed.topic_id",
                "if False",
            ),
        ),
        ("tests/unit/shards/moves/test_recent_moves.py",),
    ),
    # At the edges ----------------------------------------------------------------------------
    Mutant(
        "lets-a-topic-leave-its-tenant",
        "RE1",
        "the caller administers the tenants of both names",
        (
            Edit(
                topic_rename,
                "needs_of_rename",
                "(Action.DELETE, Resource.topic(topic.base_text)),",
                "",
            ),
        ),
        ("tests/unit/discovery/domain/test_topic_rename.py",),
    ),
    Mutant(
        "permits-by-a-name-whose-grace-is-over",
        "RE2",
        "a former name that leads nowhere permits nothing",
        (
            Edit(
                KnownObject,
                "policies_at",
                "NO_POLICIES if self.topic and now_ms >= self.until_ms else self.policies",
                "self.policies",
            ),
        ),
        _PERMISSIONS,
    ),
    Mutant(
        "keeps-what-a-former-name-permitted",
        "RE2",
        "a former name has the permissions of its topic as they are",
        (
            Edit(
                KnownObject,
                "leads_to",
                "return (self.kind, self.topic, self._home) if now_ms < self.until_ms else None",
                "return None",
            ),
        ),
        _PERMISSIONS,
    ),
    Mutant(
        "drops-a-name-that-another-shard-tells",
        "RE3",
        "a name is in a list as long as any shard tells it",
        (Edit(Tellers, "taken_away", "if not tellers:", "if True:"),),
        _TELLERS,
    ),
    Mutant(
        "resumes-between-the-halves-of-a-rename",
        "RE4",
        "a rename is resumed as a whole",
        (
            Edit(
                watch_model,
                "renamed",
                "at = before if is_created else token",
                "at = token",
            ),
        ),
        ("tests/unit/client/test_watch_model.py",),
    ),
    Mutant(
        "tells-where-a-topic-went",
        "RE4",
        "who watches the former name alone does not learn the new one",
        (
            Edit(
                shown_events,
                "shown_events",
                'payload == "topic_renamed" and not selects(event.topic_renamed.new_name)',
                "False",
            ),
        ),
        ("tests/unit/discovery/service/watches/test_shown_events.py",),
    ),
    Mutant(
        "remembers-that-a-new-name-was-absent",
        "RE5",
        "what discovery remembers of both names ends before the answer",
        (
            Edit(
                DiscoveryInventory,
                "rename_topic",
                "names = name.base_text, new_name.base_text",
                "names = (name.base_text,)",
            ),
        ),
        ("tests/unit/discovery/service/admin/test_topic_renames.py",),
    ),
    # In backups ------------------------------------------------------------------------------
    Mutant(
        "restores-a-topic-where-its-name-is",
        "BR9",
        "a renamed topic is restored at the home in its id",
        (
            Edit(
                restore,
                "parts_of",
                "home = table.owners[slot_of_id(item.topic.topic_id)]",
                "home = named",
            ),
        ),
        _BACKUP,
    ),
    Mutant(
        "keeps-both-names-of-a-rename-in-a-backup",
        "BR9",
        "a rename behind a snapshot changes both names",
        (
            Edit(
                objects,
                "keys_of",
                "return ((KIND_TOPIC, renamed.name), (KIND_TOPIC, renamed.new_name))",
                "return ((KIND_TOPIC, renamed.new_name),)",
            ),
        ),
        _BACKUP,
    ),
)
