"""Histories in which a rename of a topic breaks one promise of the log, or somebody its names."""

from __future__ import annotations

from typing import Any

from nextgen.kernel.governance.policies import Policies
from protos.nextgen.v1 import events_pb2 as e
from tests.support.spark.broken.log_breakages import (
    LogBreakage,
    Named,
    last_of,
    remove,
    said,
    settle,
)
from tests.support.spark.histories import PAID, SENT, SHORT, History
from tests.support.spark.renames import name_at, rename_topic

_NEW = "persistent://acme/orders/new"
_OTHER_ID = "ab" * 12


def _renamed(history: History, name: str, new_name: str, topic_id: str = "") -> Any:
    """Rename a topic without a look at what there is; return the event."""
    renamed = e.TopicRenamed(
        name=name,
        topic_id=topic_id or history.ids[name],
        new_name=new_name,
        namespace_id=history.ids[new_name.split("://")[1].rpartition("/")[0]],
    )
    return history.add(history.home(name), topic_renamed=renamed)


def _name_of_two_topics(history: History) -> Named:
    """The shard of a name creates a topic while a renamed one, of another shard, has the name."""
    home = history.home(PAID)
    name = name_at(history, 1, "acme/orders/taken")
    rename_topic(history, PAID, name)
    renamed = last_of(history, home)
    del history.ids[name]
    history.create_topic(name)
    settle(history)
    return renamed, said(history, "topic_created", name=name)[0]


def _renamed_to_a_living_name(history: History) -> Named:
    (created,) = said(history, "topic_created", name=SENT)
    history.unassign_all(PAID, "renamed")
    return _renamed(history, PAID, SENT), created


def _rename_of_nothing(history: History) -> Named:
    (deleted,) = said(history, "topic_deleted", name=SHORT)
    return _renamed(history, SHORT, "persistent://acme/audit/new", _OTHER_ID), deleted


def _rename_of_another_id(history: History) -> Named:
    (created,) = said(history, "topic_created", name=SENT)
    return _renamed(history, SENT, _NEW, _OTHER_ID), created


def _renamed_behind_a_gate(history: History) -> Named:
    history.create_namespace("acme/fresh")
    return _renamed(history, SENT, "persistent://acme/fresh/new"), None


def _gate_closed_over_a_renamed_topic(history: History) -> Named:
    home = history.home(SENT)
    rename_topic(history, SENT, "persistent://acme/audit/new")
    (opened,) = [
        event
        for event in said(history, "parent_gate_opened", parent_name="acme/audit")
        if event.shard_id == home
    ]
    closed = e.ParentGateClosed(
        parent_kind="namespace",
        parent_name="acme/audit",
        parent_id=opened.parent_gate_opened.parent_id,
        attempt=1 << 33,
    )
    return history.add(home, parent_gate_closed=closed), opened


def _policies_begin_anew(history: History) -> Named:
    rename_topic(history, PAID, _NEW)
    history.set_policies("topic", _NEW, 1, Policies(deduplication=False))
    return last_of(history, history.home(_NEW)), None


def _former_name_given_away(history: History) -> Named:
    home = history.home(SENT)
    rename_topic(history, SENT, _NEW)
    renamed = last_of(history, home)
    history.create_topic(SENT)
    return last_of(history, home), renamed


def _renamed_with_an_owner(history: History) -> Named:
    (created,) = said(history, "topic_created", name=PAID)
    rename_topic(history, PAID, _NEW)
    *_, unassigned = said(history, "topic_unassigned", name=PAID)
    remove(history, unassigned)
    return last_of(history, history.home(_NEW)), created


RENAME_BREAKAGES = (
    LogBreakage("two_homes", "a name of two topics", _name_of_two_topics),
    LogBreakage("created_twice", "a topic renamed to a living name", _renamed_to_a_living_name),
    LogBreakage("not_there", "a rename of nothing", _rename_of_nothing),
    LogBreakage("other_id", "a rename of another id", _rename_of_another_id),
    LogBreakage("gate_shut", "a topic renamed behind a gate", _renamed_behind_a_gate),
    LogBreakage(
        "gate_over_children", "a gate over a renamed topic", _gate_closed_over_a_renamed_topic
    ),
    LogBreakage("policies_version", "policies that begin anew", _policies_begin_anew),
    LogBreakage("name_still_leads", "a former name given away", _former_name_given_away),
    LogBreakage("renamed_with_owners", "a topic renamed with an owner", _renamed_with_an_owner),
)
