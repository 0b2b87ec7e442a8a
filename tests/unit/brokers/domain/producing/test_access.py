import pytest

from brokers.domain.producing.access import AccessMode, AccessRequest, Granted, Left, ProducerAccess
from brokers.domain.refusal import Refusal, ServerError


def asking(key: str, mode: AccessMode, epoch: int | None = None) -> AccessRequest:
    return AccessRequest(key, key, mode, epoch)


def shared(key: str) -> AccessRequest:
    return asking(key, AccessMode.SHARED)


def exclusive(key: str, epoch: int | None = None) -> AccessRequest:
    return asking(key, AccessMode.EXCLUSIVE, epoch)


def waiting(key: str, epoch: int | None = None) -> AccessRequest:
    return asking(key, AccessMode.WAIT_FOR_EXCLUSIVE, epoch)


def fencing(key: str, epoch: int | None = None) -> AccessRequest:
    return asking(key, AccessMode.EXCLUSIVE_WITH_FENCING, epoch)


def refused(access: ProducerAccess, ask: AccessRequest) -> ServerError:
    with pytest.raises(Refusal) as caught:
        access.ask(ask)
    return caught.value.code


def test_any_number_of_shared_producers_come_in_and_the_epoch_stays():
    access = ProducerAccess(None)

    for key in "abc":
        assert access.ask(shared(key)) == Granted(shared(key), None, is_new_epoch=False)


def test_an_exclusive_producer_gets_the_next_epoch_and_keeps_others_out():
    access = ProducerAccess(6)

    assert access.ask(exclusive("a")) == Granted(exclusive("a"), 7, is_new_epoch=True)
    assert refused(access, shared("b")) == ServerError.PRODUCER_BUSY
    assert refused(access, exclusive("c")) == ServerError.PRODUCER_FENCED


def test_the_first_epoch_is_0():
    assert ProducerAccess(None).ask(exclusive("a")) == Granted(exclusive("a"), 0, is_new_epoch=True)


def test_an_exclusive_producer_is_refused_while_shared_ones_are_there():
    access = ProducerAccess(None)
    access.ask(shared("a"))

    assert refused(access, exclusive("b")) == ServerError.PRODUCER_FENCED
    access.leave("a")
    assert access.ask(exclusive("b")) is not None


def test_an_exclusive_producer_that_comes_back_keeps_its_epoch():
    access = ProducerAccess(7)

    assert access.ask(exclusive("a", 7)) == Granted(exclusive("a", 7), 7, is_new_epoch=False)


@pytest.mark.parametrize("late", [exclusive("a", 6), waiting("a", 6), fencing("a", 6)])
def test_a_producer_that_somebody_has_followed_is_fenced(late: AccessRequest):
    assert refused(ProducerAccess(7), late) == ServerError.PRODUCER_FENCED


def test_producers_that_wait_get_their_turn_in_the_order_of_their_coming():
    access = ProducerAccess(None)
    access.ask(exclusive("a"))

    assert access.ask(waiting("b")) is None
    assert access.ask(waiting("c")) is None
    assert refused(access, shared("d")) == ServerError.PRODUCER_BUSY
    assert access.leave("a") == Left(Granted(waiting("b"), 1, is_new_epoch=True))
    assert access.leave("b") == Left(Granted(waiting("c"), 2, is_new_epoch=True))
    assert access.leave("c") == Left(None)


def test_one_that_waits_for_shared_producers_comes_in_behind_the_last():
    access = ProducerAccess(None)
    access.ask(shared("a"))
    access.ask(shared("b"))
    access.ask(waiting("c"))

    assert access.leave("a") == Left(None)
    assert access.leave("b") == Left(Granted(waiting("c"), 0, is_new_epoch=True))


def test_one_that_waits_may_give_up():
    access = ProducerAccess(None)
    access.ask(exclusive("a"))
    access.ask(waiting("b"))

    assert access.leave("b") == Left(None)
    assert access.waiting == 0
    assert access.leave("a") == Left(None)


def test_one_that_waited_with_an_epoch_that_was_overtaken_is_fenced():
    access = ProducerAccess(3)
    access.ask(shared("a"))
    access.ask(waiting("b"))
    access.ask(waiting("c", 3))

    assert access.leave("a") == Left(Granted(waiting("b"), 4, is_new_epoch=True))
    assert access.leave("b") == Left(None, fenced=("c",))


def test_fencing_ends_everybody_else():
    access = ProducerAccess(2)
    access.ask(shared("a"))
    access.ask(waiting("b"))

    granted = access.ask(fencing("c"))

    assert granted == Granted(fencing("c"), 3, is_new_epoch=True, ended=("a", "b"))
    assert refused(access, shared("d")) == ServerError.PRODUCER_BUSY
    assert access.leave("a") == Left(None)


def test_a_producer_that_leaves_twice_has_left_once():
    access = ProducerAccess(None)
    access.ask(exclusive("a"))
    access.ask(waiting("b"))
    access.leave("a")

    assert access.leave("a") == Left(None)
    assert access.topic_epoch == 1
