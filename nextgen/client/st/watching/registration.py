"""A consumer's registration with the controller of its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nextgen.client.st.connection.brokers import Brokers, refusal_in
from nextgen.client.st.connection.link import Link
from nextgen.client.st.domain.assignment import Assignment
from nextgen.client.st.domain.consumer_session import (
    Assigned,
    Connect,
    ConsumerSession,
    Effect,
    Leave,
    Pause,
    Register,
    StartFailed,
)
from nextgen.client.st.errors import MalformedLayout, NotSupported, ScalableTopicError, TimedOut
from nextgen.client.st.watching.layout_watch import LayoutWatch
from nextgen.client.st.wire import assignment_of, error_of, is_final
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar

AssignmentListener = Callable[[Assignment, Assignment | None], None]
"""Called with an assignment and the one before it."""


class Registration:
    """``await start()`` registers; assignments go to the listener, from the event loop."""

    def __init__(
        self,
        brokers: Brokers,
        watch: LayoutWatch,
        *,
        subscription: str,
        consumer_name: str,
        timeout_ms: int,
        on_assignment: AssignmentListener,
        consumer_type: pulsar.ScalableConsumerType = pulsar.STREAM,
    ) -> None:
        self._brokers = brokers
        self._watch = watch
        self._subscription = subscription
        self._consumer_name = consumer_name
        self._consumer_type = consumer_type
        self._timeout_ms = timeout_ms
        self._on_assignment = on_assignment
        self._session = ConsumerSession()
        self._link: Link | None = None
        self._has_own_link = False
        self._request_id: int | None = None
        self._early: list[pulsar.CommandScalableTopicAssignmentUpdate] = []
        self._started: asyncio.Future[Assignment] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return repr(self._session)

    async def start(self) -> Assignment:
        """Return the first assignment, which also goes to the listener.

        Raises:
            TimedOut: No controller took the consumer in time.
            ScalableTopicError: The server refuses the consumer.
        """
        self._started = asyncio.get_running_loop().create_future()
        self._carry_out(self._session.start())
        try:
            async with timeout(self._timeout_ms / 1_000):
                return await self._started
        except TimeoutError as error:
            raise TimedOut(
                f"no controller of {self._watch.topic} took the consumer within "
                f"{self._timeout_ms} ms"
            ) from error

    def topic_recreated(self) -> None:
        """The topic was deleted and created again."""
        self._session.topic_recreated()

    def close(self) -> None:
        """Leave the group. Harmless when left already."""
        self._on_assignment = _ignore
        self._stop_timer()
        for task in self._tasks:
            task.cancel()
        self._carry_out(self._session.close())
        self._drop_link()

    async def wait_closed(self) -> None:
        """Wait for what ``close`` left running."""
        await asyncio.gather(*self._tasks, *self._leaving, return_exceptions=True)

    # Receiver ---------------------------------------------------------------------------------

    def received(self, link: Link, command: pulsar.BaseCommand, payload: bytes) -> None:
        update = command.scalableTopicAssignmentUpdate
        asked = self._request_id
        if link is self._link and asked is not None and not link.waits_for(asked):
            # It came right behind the answer, which nobody has looked at yet.
            self._early.append(update)
        else:
            self._assigned(update.consumer_id, update.assignment)

    def link_lost(self, link: Link) -> None:
        for consumer_id, receiver in list(link.registrations.items()):
            if receiver is self:
                self._carry_out(self._session.connection_lost(consumer_id))

    # Inside -----------------------------------------------------------------------------------

    def _assigned(self, consumer_id: int, message: pulsar.ScalableConsumerAssignment) -> None:
        try:
            assignment = assignment_of(message)
        except MalformedLayout as error:
            # The last good one stays; without one the session tries again.
            self._carry_out(self._session.failed(error))
            return
        self._carry_out(self._session.assigned(consumer_id, assignment))

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            _EFFECTS[type(effect)](self, effect)

    def _connect(self, _: Connect) -> None:
        start("st-controller-connect", self._open(), self._tasks)

    async def _open(self) -> None:
        self._drop_link()
        try:
            link = await self._controller()
        except ScalableTopicError as error:
            self._carry_out(self._session.failed(error, is_final=is_final(error)))
            return
        self._link = link
        consumer_id = link.next_id()
        link.registrations[consumer_id] = self
        effects = self._session.connected(consumer_id)
        if not effects:
            del link.registrations[consumer_id]
        self._carry_out(effects)

    async def _controller(self) -> Link:
        """Return a connection to the controller, or to any broker: it then becomes it.

        A server that cannot be told that a consumer leaves sees it when the connection ends, so
        the consumer has one of its own there.
        """
        layout = self._watch.layout
        url = ""
        if layout is not None:
            url = self._brokers.chosen(layout.controller_url, layout.controller_url_tls)
        link = await self._reach(url, is_own=False)
        if not link.has_scalable_topics:
            raise NotSupported("the server does not support scalable topics")
        self._has_own_link = not link.can_leave_groups
        return await self._reach(url, is_own=True) if self._has_own_link else link

    async def _reach(self, url: str, *, is_own: bool) -> Link:
        if url:
            return await self._brokers.at(url, is_own=is_own)
        topic = self._watch.topic
        return await (self._brokers.own_serving(topic) if is_own else self._brokers.serving(topic))

    def _register(self, effect: Register) -> None:
        start("st-controller-register", self._ask(effect.consumer_id), self._tasks)

    async def _ask(self, consumer_id: int) -> None:
        assert self._link is not None
        self._request_id, self._early = self._link.next_request_id(), []
        early = self._early
        command = pulsar.BaseCommand(
            type=pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE,
            scalableTopicSubscribe=pulsar.CommandScalableTopicSubscribe(
                request_id=self._request_id,
                topic=self._watch.topic,
                subscription=self._subscription,
                consumer_name=self._consumer_name,
                consumer_id=consumer_id,
                consumer_type=self._consumer_type,
            ),
        )
        try:
            answer = await self._link.ask(command, self._timeout_ms)
        except ScalableTopicError as error:
            self._carry_out(self._session.failed(error))
            return
        finally:
            self._request_id = None
        response = answer.scalableTopicSubscribeResponse
        failure: ScalableTopicError
        if answer.type != pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE:
            failure = refusal_in(answer)
        elif response.HasField("error"):
            failure = error_of(response.error, response.message)
        elif not response.HasField("assignment"):
            failure = MalformedLayout("the controller's answer has neither assignment nor error")
        else:
            self._assigned(consumer_id, response.assignment)
            for update in early:
                self._assigned(update.consumer_id, update.assignment)
            return
        self._carry_out(self._session.failed(failure, is_final=is_final(failure)))

    def _leave(self, effect: Leave) -> None:
        link = self._link
        if link is None or link.registrations.pop(effect.consumer_id, None) is None:
            return
        if link.can_leave_groups and link.is_open:
            start("st-controller-leave", self._say_goodbye(link, effect), self._leaving)

    async def _say_goodbye(self, link: Link, effect: Leave) -> None:
        command = pulsar.BaseCommand(
            type=pulsar.BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE,
            scalableTopicUnsubscribe=pulsar.CommandScalableTopicUnsubscribe(
                request_id=link.next_request_id(), consumer_id=effect.consumer_id
            ),
        )
        try:
            await link.ask(command, self._timeout_ms)
        except ScalableTopicError:
            # The group notices that the connection ended, or waits for its grace period.
            return

    def _pause(self, effect: Pause) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(
            effect.delay_ms / 1_000, lambda: self._carry_out(self._session.paused())
        )

    def _has_assignment(self, effect: Assigned) -> None:
        self._on_assignment(effect.assignment, effect.former)
        if self._started is not None and not self._started.done():
            self._started.set_result(effect.assignment)

    def _start_failed(self, effect: StartFailed) -> None:
        if self._started is not None and not self._started.done():
            self._started.set_exception(effect.error)
            # Nobody may be waiting any more.
            self._started.exception()

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        for consumer_id, receiver in list(link.registrations.items()):
            if receiver is self:
                del link.registrations[consumer_id]
        if self._has_own_link:
            link.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_EFFECTS: dict[type[Effect], Callable[[Registration, Any], None]] = {
    Connect: Registration._connect,
    Register: Registration._register,
    Leave: Registration._leave,
    Pause: Registration._pause,
    Assigned: Registration._has_assignment,
    StartFailed: Registration._start_failed,
}


def _ignore(assignment: Assignment, former: Assignment | None) -> None:
    """The listener of a registration that was closed."""
