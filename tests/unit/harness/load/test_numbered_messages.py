"""Whether a run of numbered messages arrived whole."""

from __future__ import annotations

from nextgen.harness.load.pulsar.messages import Numbered, payload_of


def take(numbered: Numbered, *numbers: int) -> dict[str, int]:
    for number in numbers:
        numbered.take(payload_of(number, 20))
    return numbered.as_json()


def test_all_in_order_and_once_is_what_is_wanted():
    counts = take(Numbered(3), 0, 1, 2)

    assert counts == {
        "received": 3, "lost": 0, "duplicated": 0, "out_of_order": 0, "unknown": 0
    }  # fmt: skip


def test_what_never_came_is_lost_and_what_came_again_is_duplicated():
    counts = take(Numbered(4), 0, 0, 3)

    assert (counts["lost"], counts["duplicated"], counts["out_of_order"]) == (2, 1, 0)


def test_what_comes_behind_a_later_one_is_out_of_order():
    assert take(Numbered(3), 1, 0, 2)["out_of_order"] == 1


def test_what_was_never_sent_is_unknown():
    numbered = Numbered(2)
    numbered.take(payload_of(2, 20))
    numbered.take(payload_of(1, 20)[:-1] + b"x")

    assert numbered.unknown == 2
    assert numbered.lost == 2
