"""Versions that the lost replicas may have handed out are passed over."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from cluster_manager.recover import raise_versions


def test_what_has_a_version_goes_on_behind_every_version_that_may_have_been_used() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE shard_map (version INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE quotas (version INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE configuration (version INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO configuration VALUES (3)")
        connection.execute("INSERT INTO shard_map VALUES (7)")

        raise_versions(connection)
        once = connection.execute("SELECT version FROM shard_map").fetchall()
        raise_versions(connection)

        assert once == [(1 << 32,)]
        assert connection.execute("SELECT version FROM shard_map").fetchall() == [(2 << 32,)]
        assert connection.execute("SELECT version FROM configuration").fetchall() == [(2 << 32,)]
        assert connection.execute("SELECT version FROM quotas").fetchall() == []
