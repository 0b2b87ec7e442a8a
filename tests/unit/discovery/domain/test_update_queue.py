"""The bounded queue between the shards and a watcher that reads."""

from discovery.domain.update_queue import QueuedUpdate, UpdateQueue


def queue_of(updates_max=4, bytes_max=100, **more) -> UpdateQueue:
    return UpdateQueue(updates_max=updates_max, bytes_max=bytes_max, **more)


def test_what_was_put_first_is_taken_first_and_moves_the_place_to_resume():
    queue = queue_of(sent={1: 5, 2: 9})
    queue.offer(QueuedUpdate(b"a", {1: 7}), 0.0)
    queue.offer(QueuedUpdate(b"b", {1: 8}), 0.0)

    assert queue.sent == {1: 5, 2: 9}, "nothing was taken yet"
    assert queue.take() == QueuedUpdate(b"a", {1: 7})
    assert queue.sent == {1: 7, 2: 9}
    assert queue.take() == QueuedUpdate(b"b", {1: 8})
    assert queue.take() is None
    assert (queue.sent, queue.bytes) == ({1: 8, 2: 9}, 0)


def test_a_shard_that_is_forgotten_cannot_be_resumed_until_its_snapshot_is_complete():
    queue = queue_of(sent={1: 5, 2: 9})
    queue.offer(QueuedUpdate(b"reset", forgotten=1), 0.0)
    queue.offer(QueuedUpdate(b"complete", {1: 20}), 0.0)

    queue.take()
    assert queue.sent == {2: 9}
    queue.take()
    assert queue.sent == {1: 20, 2: 9}


def test_updates_are_bounded_in_number():
    queue = queue_of(updates_max=3)
    assert [queue.offer(QueuedUpdate(b"x"), 0.0) for _ in range(4)] == [True, True, True, False]
    assert len(queue) == 3


def test_updates_are_bounded_in_bytes():
    queue = queue_of(bytes_max=10)
    assert queue.offer(QueuedUpdate(b"x" * 6), 0.0)
    assert queue.offer(QueuedUpdate(b"x" * 4), 0.0)
    assert not queue.offer(QueuedUpdate(b"x"), 0.0)
    queue.take()
    assert queue.offer(QueuedUpdate(b"x" * 6), 0.0)


def test_one_update_always_finds_room():
    queue = queue_of(bytes_max=10)
    assert queue.offer(QueuedUpdate(b"x" * 1_000), 0.0)
    assert not queue.offer(QueuedUpdate(b"x"), 0.0)


def test_a_snapshot_leaves_half_of_the_room():
    queue = queue_of(updates_max=100, bytes_max=10)
    queue.offer(QueuedUpdate(b"x" * 4), 0.0)
    assert queue.is_calm
    queue.offer(QueuedUpdate(b"x"), 0.0)
    assert not queue.is_calm
    queue.take()
    assert queue.is_calm


def test_its_age_is_that_of_the_oldest():
    queue = queue_of()
    assert queue.age(9.0) == 0.0
    queue.offer(QueuedUpdate(b"a"), 1.0)
    queue.offer(QueuedUpdate(b"b"), 3.0)
    assert queue.age(9.0) == 8.0
    queue.take()
    assert queue.age(9.0) == 6.0


def test_what_waits_can_be_dropped_without_moving_the_place_to_resume():
    queue = queue_of(sent={1: 5})
    queue.offer(QueuedUpdate(b"a", {1: 7}), 0.0)
    queue.clear()
    assert (len(queue), queue.bytes, queue.sent) == (0, 0, {1: 5})
