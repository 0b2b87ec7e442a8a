"""Whose process is at the other end of a socket."""

from __future__ import annotations

import os
import socket

import pytest

from brokers.adapters.plugin.peer_user import ROOT, is_trusted, user_of_peer


def test_the_kernel_knows_whose_process_the_peer_is() -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert user_of_peer(here) == os.geteuid()


def test_where_the_platform_does_not_say_it_the_file_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert user_of_peer(here) is None
    assert is_trusted(None)


@pytest.mark.parametrize(("user", "trusted"), [(1_000, True), (ROOT, True), (1_001, False)])
def test_one_user_and_root_are_trusted(
    monkeypatch: pytest.MonkeyPatch, user: int, trusted: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert is_trusted(user) is trusted
