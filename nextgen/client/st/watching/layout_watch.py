"""The watch of one topic's layout, on whatever connection there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.connection.link import Link
from nextgen.client.st.domain.layout import Layout
from nextgen.client.st.domain.watch_session import (
    Changed,
    CloseSession,
    Connect,
    Effect,
    Lookup,
    Pause,
    Started,
    StartFailed,
    Vanished,
    WatchSession,
)
from nextgen.client.st.errors import MalformedLayout, ScalableTopicError
from nextgen.client.st.wire import error_of, layout_of, lookup_name
from nextgen.tasks.background import start
from protos.pulsar import PulsarApi_pb2 as pulsar

LayoutListener = Callable[[Layout, Layout | None], None]
"""Called with a layout and the one before it. Both are of one epoch if only hints differ."""


class LayoutWatch:
    """``await start()`` gives the first layout; later ones go to the listener.

    ``on_vanished`` is called when the topic seems to be deleted. Both callbacks are called from the
    event loop, and not after ``close``.
    """

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        *,
        create_if_missing: bool,
        answer_timeout_ms: int,
        on_layout: LayoutListener,
        on_vanished: Callable[[], None],
    ) -> None:
        self._brokers = brokers
        self._session = WatchSession(lookup_name(topic).text, create_if_missing=create_if_missing)
        self._answer_timeout_ms = answer_timeout_ms
        self._on_layout = on_layout
        self._on_vanished = on_vanished
        self._link: Link | None = None
        self._started: asyncio.Future[Layout] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return repr(self._session)

    @property
    def topic(self) -> str:
        """The topic's name, as the server resolves it."""
        return self._session.topic

    @property
    def layout(self) -> Layout | None:
        return self._session.layout

    @property
    def is_vanished(self) -> bool:
        return self._session.is_vanished

    async def start(self) -> Layout:
        """Return the first layout, which also goes to the listener.

        Raises:
            TopicNotFound: There is no such topic.
            NotSupported: The server does not have scalable topics.
            ScalableTopicError: Any other reason why there is none.
        """
        self._started = asyncio.get_running_loop().create_future()
        self._carry_out(self._session.start())
        try:
            return await self._started
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        """End the watch. Harmless when it has ended already."""
        self._on_layout, self._on_vanished = _ignore_layout, _ignore
        self._carry_out(self._session.close())
        self._stop_timer()
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait for what ``close`` left running."""
        await asyncio.gather(*self._connecting, return_exceptions=True)

    # Receiver ---------------------------------------------------------------------------------

    def received(self, link: Link, command: pulsar.BaseCommand, payload: bytes) -> None:
        update = command.scalableTopicUpdate
        self._stop_timer()
        if update.HasField("error"):
            error = error_of(update.error, update.message)
            self._carry_out(self._session.refused(update.session_id, error))
            return
        try:
            layout = layout_of(update)
        except MalformedLayout as error:
            self._carry_out(self._session.refused(update.session_id, error))
            return
        self._carry_out(
            self._session.updated(update.session_id, layout, update.resolved_topic_name)
        )

    def unreadable(self, session_id: int, reason: str) -> None:
        self._stop_timer()
        self._carry_out(self._session.refused(session_id, MalformedLayout(reason)))

    def link_lost(self, link: Link) -> None:
        for session_id, receiver in list(link.layouts.items()):
            if receiver is self:
                self._stop_timer()
                self._carry_out(self._session.connection_lost(session_id))

    # Inside -----------------------------------------------------------------------------------

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            _EFFECTS[type(effect)](self, effect)

    def _connect(self, _: Connect) -> None:
        start("st-layout-connect", self._open(), self._connecting)

    async def _open(self) -> None:
        try:
            link = await self._brokers.serving(self._session.topic)
        except ScalableTopicError as error:
            self._carry_out(self._session.connect_failed(error))
            return
        self._link = link
        session_id = link.next_id()
        link.layouts[session_id] = self
        effects = self._session.connected(session_id, has_scalable_topics=link.has_scalable_topics)
        if not any(isinstance(each, Lookup) for each in effects):
            del link.layouts[session_id]
        self._carry_out(effects)
        if not link.is_open:
            self._carry_out(self._session.connection_lost(session_id))

    def _look_up(self, effect: Lookup) -> None:
        assert self._link is not None
        self._link.tell(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.SCALABLE_TOPIC_LOOKUP,
                scalableTopicLookup=pulsar.CommandScalableTopicLookup(
                    session_id=effect.session_id,
                    topic=effect.topic,
                    create_if_missing=effect.create_if_missing,
                ),
            )
        )
        self._after(
            self._answer_timeout_ms,
            lambda: self._carry_out(self._session.timed_out(effect.session_id)),
        )

    def _close_session(self, effect: CloseSession) -> None:
        link, self._link = self._link, None
        if link is not None and link.layouts.pop(effect.session_id, None) is not None:
            link.tell(
                pulsar.BaseCommand(
                    type=pulsar.BaseCommand.SCALABLE_TOPIC_CLOSE,
                    scalableTopicClose=pulsar.CommandScalableTopicClose(
                        session_id=effect.session_id
                    ),
                )
            )

    def _pause(self, effect: Pause) -> None:
        self._after(effect.delay_ms, lambda: self._carry_out(self._session.paused()))

    def _has_started(self, effect: Started) -> None:
        self._on_layout(effect.layout, None)
        if self._started is not None and not self._started.done():
            self._started.set_result(effect.layout)

    def _has_changed(self, effect: Changed) -> None:
        self._on_layout(effect.layout, effect.former)

    def _has_vanished(self, _: Vanished) -> None:
        self._on_vanished()

    def _start_failed(self, effect: StartFailed) -> None:
        if self._started is not None and not self._started.done():
            self._started.set_exception(effect.error)
            # Nobody may be waiting any more.
            self._started.exception()

    def _after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, action)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_EFFECTS: dict[type[Effect], Callable[[LayoutWatch, Any], None]] = {
    Connect: LayoutWatch._connect,
    Lookup: LayoutWatch._look_up,
    CloseSession: LayoutWatch._close_session,
    Pause: LayoutWatch._pause,
    Started: LayoutWatch._has_started,
    Changed: LayoutWatch._has_changed,
    Vanished: LayoutWatch._has_vanished,
    StartFailed: LayoutWatch._start_failed,
}


def _ignore_layout(layout: Layout, former: Layout | None) -> None:
    """The listener of a watch that was closed."""


def _ignore() -> None:
    """As ``_ignore_layout``, for deletions."""
