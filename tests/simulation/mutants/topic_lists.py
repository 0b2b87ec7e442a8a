"""The guards of topic lists, by pattern and by properties: what is listed, watched and sent."""

from __future__ import annotations

from nextgen.client.discovery import topic_list
from nextgen.client.topic_lists import shard_names
from nextgen.client.topic_lists.namespace_changes import NamespaceChanges
from nextgen.client.topic_lists.place import Place
from nextgen.client.topic_lists.selection import PropertySelection
from nextgen.client.topic_lists.shared_list import SharedList
from nextgen.client.topic_lists.shared_lists import SharedTopicLists
from nextgen.client.topic_lists.tellers import Tellers
from nextgen.pulsar.scalable_topics.namespace_session import NamespaceSession
from nextgen.pulsar.topic_lists.placement import WatcherPlaces
from nextgen.pulsar.topic_lists.session import TopicListSession
from shards.inventory import reader
from shards.projections import reading
from tests.simulation.mutants.mutant import Edit, Mutant

_HISTORIES = ("tests/unit/client/topic_lists/test_histories.py",)
_SHARED = ("tests/unit/client/topic_lists/test_shared_lists.py",)
_SESSION = ("tests/unit/pulsar/topic_lists/test_session.py",)
_PROGRAM = ("tests/unit/client/discovery/test_topic_list.py",)
_NAMESPACES = ("tests/unit/pulsar/scalable_topics/test_namespace_session.py",)
_PAGES = ("tests/unit/shards/inventory/test_listing.py",)
_PLACEMENT = ("tests/unit/pulsar/topic_lists/test_placement.py",)

MUTANTS = (
    Mutant(
        "topic-list-is-read-before-it-is-watched",
        "TL1",
        "the names of a shard are read once its changes are watched",
        (
            Edit(
                SharedList,
                "_load",
                "resets = await progress.wait_begun()",
                "resets = progress.resets",
            ),
        ),
        (*_HISTORIES, *_SHARED),
    ),
    Mutant(
        "topic-list-forgets-what-changed-while-it-was-read",
        "TL1",
        "changes that arrive while a shard's names are read are kept and applied",
        (Edit(SharedList, "_take_matching", "load.changes += changes", "pass"),),
        (*_HISTORIES, *_SHARED),
    ),
    Mutant(
        "topic-list-takes-away-what-another-shard-tells",
        "RE3",
        "a name is in a list as long as any shard tells it",
        (Edit(Tellers, "taken_away", "tellers.discard(shard_id)", "tellers.clear()"),),
        ("tests/unit/client/topic_lists/test_tellers.py",),
    ),
    Mutant(
        "topic-list-has-names-of-other-namespaces",
        "RE3",
        "of a rename into another namespace a list takes its half",
        (Edit(NamespaceChanges, "of_namespace", "each.base_name.startswith(prefix)", "prefix"),),
        _HISTORIES,
    ),
    Mutant(
        "topic-list-misses-changes-unnoticed",
        "TL1",
        "a shard whose changes were missed is read again",
        (Edit(NamespaceChanges, "_take", "shared.lose(step.shard_id)", "pass"),),
        (*_HISTORIES, *_SHARED),
    ),
    Mutant(
        "topic-list-believes-any-hash",
        "TL4, TL6",
        "a watcher is spared the names if the hash that it has is that of the list",
        (Edit(TopicListSession, "_answer", "if known == watcher.place.hash:", "if known:"),),
        _SESSION,
    ),
    Mutant(
        "topic-list-sends-without-room",
        "TL6",
        "an update leaves when the client has read the one before",
        (Edit(TopicListSession, "_serve", "await self._client.until_writable()", "pass"),),
        _SESSION,
    ),
    Mutant(
        "topic-list-keeps-every-change",
        "TL5",
        "the changes that wait for a watcher are bounded: then it falls behind",
        (
            Edit(
                Place,
                "put",
                "if self._pending_names > TOPIC_LIST_PENDING_NAMES_MAX:",
                "if False:",
            ),
        ),
        _SHARED,
    ),
    Mutant(
        "topic-list-difference-without-what-waited",
        "TL1",
        "the difference of a watcher that was behind has the changes that waited for it",
        (Edit(Place, "_catch_up", "self._pending or ()", "()"),),
        (*_SHARED, *_HISTORIES),
    ),
    Mutant(
        "topic-list-difference-ends-too-early",
        "TL1",
        "what changes while a difference is made is in the next one",
        (
            Edit(
                Place,
                "_catch_up",
                "self._behind = None if self._names.snapshot() is present else present",
                "self._behind = None",
            ),
        ),
        (*_SHARED, *_HISTORIES),
    ),
    Mutant(
        "topic-list-loses-a-step-with-its-worker",
        "TL1",
        "a worker that is cancelled within a step ends its lists, which are read again",
        (
            Edit(
                NamespaceChanges,
                "_work",
                "except BaseException as error:",
                "except Exception as error:",
            ),
        ),
        _SHARED,
    ),
    Mutant(
        "topic-list-that-failed-ends-its-successor",
        "TL1",
        "a caller of a list that failed leaves alone the one that has taken its place",
        (Edit(SharedTopicLists, "_loaded", "if self._lists.get(key) is shared:", "if True:"),),
        _SHARED,
    ),
    Mutant(
        "topic-lists-grow-without-bound",
        "TL5",
        "lists that outgrow the memory for them end, the largest first",
        (Edit(SharedTopicLists, "account", "self._end_largest()", "pass"),),
        _SHARED,
    ),
    Mutant(
        "topic-list-watchers-outlive-their-connection",
        "TL6",
        "the watchers of a connection end with it",
        (Edit(TopicListSession, "close", "self._end(watcher)", "pass"),),
        _SESSION,
    ),
    Mutant(
        "topic-list-takes-an-id-for-its-pattern",
        "TL6",
        "an id that is used again stands for the namespace of the later request",
        (
            Edit(
                TopicListSession,
                "_watch",
                "(watcher.namespace, watcher.pattern) != (namespace, pattern)",
                "watcher.pattern != pattern",
            ),
        ),
        _SESSION,
    ),
    Mutant(
        "topic-list-update-goes-on-over-streams",
        "TL1",
        "of an update that broke off nothing counts at the next node",
        (
            Edit(
                topic_list,
                "watch_topic_list",
                "nonlocal arriving\n        arriving = _Update()",
                "nonlocal arriving",
            ),
        ),
        _PROGRAM,
    ),
    Mutant(
        "topic-list-watchers-are-placed-without-memory",
        "TL5, TL8",
        "beyond the memory for watchers the lookup of a pattern names another server",
        (Edit(WatcherPlaces, "_is_watched_here", "if not watches.has_room:", "if False:"),),
        _PLACEMENT,
    ),
    Mutant(
        "namespace-watch-keeps-topics-that-lost-their-properties",
        "SC14",
        "a topic whose properties no longer match leaves the list",
        (
            Edit(
                PropertySelection,
                "narrowed",
                "return change._replace(created=(), deleted=(change.base_name,))",
                "return None",
            ),
        ),
        (*_NAMESPACES, *_HISTORIES),
    ),
    Mutant(
        "namespace-watch-reads-topics-of-any-properties",
        "SC14",
        "of the objects that a shard of an earlier release lists those are kept that match",
        (
            Edit(
                shard_names,
                "read_names",
                "if selection.properties.matches(item.topic.properties)",
                "if True",
            ),
        ),
        _SHARED,
    ),
    Mutant(
        "shards-list-topics-by-the-text-of-their-properties",
        "SC14",
        "a topic is listed by its properties, not by a text that looks like them",
        (
            Edit(
                reading,
                "read_matching",
                "if properties.matches(dict(unpack_properties(packed))):",
                "if True:",
            ),
        ),
        _PAGES,
    ),
    Mutant(
        "filtered-pages-end-with-their-last-name",
        "SC14",
        "a page by properties is followed by another one until every topic was looked at",
        (Edit(reader, "_matching_page", "elif next_after:", "elif False:"),),
        _PAGES,
    ),
    Mutant(
        "namespace-watch-goes-on-from-too-late",
        "SC14",
        "a list that ended while it was sent goes on from what was sent",
        (
            Edit(
                Place,
                "renew",
                "self._behind = present if self._error is not None else None",
                "self._behind = None",
            ),
        ),
        _NAMESPACES,
    ),
    Mutant(
        "namespace-watch-gives-up-on-who-has-a-list",
        "SC15",
        "a client that has a list gets no error, and is served later",
        (
            Edit(
                NamespaceSession,
                "_opened",
                "if wanted.known_hash is None and attempts == NAMESPACE_WATCH_ATTEMPTS_MAX:",
                "if attempts == NAMESPACE_WATCH_ATTEMPTS_MAX:",
            ),
        ),
        _NAMESPACES,
    ),
    Mutant(
        "namespace-watch-believes-any-hash",
        "SC15",
        "a client is spared the names if it has this very list",
        (Edit(NamespaceSession, "_serve", "if place.hash != sent:", "if sent is None:"),),
        (*_NAMESPACES, *_HISTORIES),
    ),
    Mutant(
        "namespace-watch-keeps-memory-of-a-list-that-outgrew-it",
        "SC15",
        "a place at a list that ended for want of memory is closed at once",
        (
            Edit(
                NamespaceSession, "_opened_again", "if isinstance(error, Overloaded):", "if False:"
            ),
        ),
        _NAMESPACES,
    ),
    Mutant(
        "namespace-watches-send-all-at-once",
        "SC16",
        "the watches of one connection send one behind the other",
        (Edit(NamespaceSession, "_turn", "async with self._sending:", "if True:"),),
        _NAMESPACES,
    ),
    Mutant(
        "namespace-watch-sends-without-room",
        "SC16",
        "an update is made when the client has read the one before",
        (Edit(NamespaceSession, "_turn", "await self._client.until_writable()", "pass"),),
        _NAMESPACES,
    ),
)
