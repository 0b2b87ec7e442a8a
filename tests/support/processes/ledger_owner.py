"""A process that owns a ledger, and can stop itself between any two steps of what it does.

Run as a program it is the parent of such processes: it has everything imported, so that a child
costs milliseconds. It reads one JSON object a line and answers each with one.

    {"do": "start", "name": "a", "epoch": 1, "stop_at": "entries written", ...}   -> {"pid": 7}
    {"do": "wait", "pid": 7}        until it stopped or ended  -> {"stopped": true} / {"code": 0}
    {"do": "resume", "pid": 7}      SIGCONT                                       -> {"pid": 7}

A child tells what happened to it in a file that all children append to, a line at a time:

    a opened {"cursor/a": "3"}      the facts that it found
    a ack a-17                      the entry is acknowledged
    a fact cursor/c 17              so is the fact
    a stops entries written         just before SIGSTOP
    a fenced | a done
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.ports.ledger import Fenced, NewEntry, TopicLedger

TOPIC = "0a1b00112233445566778899"
TOPIC_NAME = "persistent://public/default/orders"
CURSOR = "cursor/c"


@dataclass(frozen=True, slots=True)
class Order:
    """What one process is to do."""

    root: str
    log: str
    name: str
    epoch: int
    entries: int
    """How many to append; 0: until it is fenced."""
    padding: int = 0
    """Bytes added to each entry and fact, so that files roll over."""
    segment_bytes: int = 10_000
    stop_at: str = ""
    stop_after: int = 1
    """At which occurrence of the step to stop."""
    lets_go: bool = False
    """Whether it ends its epoch when it has appended all."""


class Child:
    """One owner, in its own process."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._seen = 0
        self._log = os.open(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, *words: str) -> None:
        os.write(self._log, " ".join((self._order.name, *words)).encode() + b"\n")

    def on_step(self, step: str) -> None:
        if step != self._order.stop_at:
            return
        self._seen += 1
        if self._seen == self._order.stop_after:
            self.say("stops", step)
            # To this very thread: it stops before the call returns, and all others with it. A
            # signal to the process may be taken by another thread while this one goes on.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    async def run(self) -> None:
        order = self._order
        store = DiskLedgerStore(
            Path(order.root),
            broker_id=order.name,
            segment_bytes=order.segment_bytes,
            on_step=self.on_step,
            writers=1,
        )
        try:
            ledger = await store.open(TOPIC, "", order.epoch, topic_name=TOPIC_NAME)
            facts = {key: value.decode().strip("+") for key, value in ledger.state.items()}
            self.say("opened", json.dumps(facts))
            await self._use(ledger)
            if order.lets_go:
                await ledger.close(is_over=True)
            self.say("done")
        except Fenced:
            self.say("fenced")
        await store.close()

    async def _use(self, ledger: TopicLedger) -> None:
        order = self._order
        number = 0
        while not order.entries or number < order.entries:
            text = f"{order.name}-{number}"
            payload = text.encode() + b"+" * order.padding
            appended = ledger.append(NewEntry(payload, 1, order.name, number))
            if number % 2:
                # Half of the entries have a round for themselves.
                await appended
                self.say("ack", text)
            stored = ledger.put_state(CURSOR, payload)
            if not number % 2:
                await appended
                self.say("ack", text)
            await stored
            self.say("fact", CURSOR, text)
            number += 1


def _start(command: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    # Threads take turns only where they wait: an entry and a fact given together share a round,
    # and what was acknowledged is told before the next round can stop the process.
    sys.setswitchinterval(60)
    try:
        asyncio.run(Child(Order(**command)).run())
        code = 0
    finally:
        os._exit(code)


def _wait(pid: int) -> dict[str, Any]:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return {"stopped": True}
    return {"code": os.waitstatus_to_exitcode(status)}


def _resume(pid: int) -> int:
    os.kill(pid, signal.SIGCONT)
    return pid


def main() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        match command.pop("do"):
            case "start":
                answer: dict[str, Any] = {"pid": _start(command)}
            case "wait":
                answer = _wait(command["pid"])
            case _:
                answer = {"pid": _resume(command["pid"])}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
