"""Messages to nodes and their replies, on a Flower grid.

Replies are pulled one at a time: a reply that cannot be read then costs no other one, and only one is in memory.
Flower's own `send_and_receive` polls every 3 s and holds all replies.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import httpx
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.run import RunNotRunningException

from dragfl.errors import Interrupted
from dragfl.flower.records import Refused, reply_content
from dragfl.flower.roster import Node

FIRST_PAUSE_S, LONGEST_PAUSE_S, GROWTH = 0.1, 1.0, 1.5  # between two looks for replies
LOST = (httpx.TransportError, OSError)  # the connection to SuperLink; flwr's grid has tried again before it raises


LOG = logging.getLogger("dragfl")
T = TypeVar("T")


class StopRequest:
    """A request to stop. It ends a wait for SuperLink at once, and anything else after the round.

    `with stop:` marks code that waits. `ask` is called by a signal handler, so it interrupts what the main thread does.
    """

    def __init__(self) -> None:
        self.asked = False
        self._waiting = False

    def __enter__(self) -> None:
        self._waiting = True
        if self.asked:
            self.ask()

    def __exit__(self, *_: object) -> None:
        self._waiting = False

    def ask(self) -> None:
        self.asked = True
        if self._waiting:
            raise Interrupted("stopped during a round; start the app again with the same run-dir to continue")


class Exchange:
    """Sends messages and waits for replies."""

    def __init__(
        self,
        grid: Grid,
        stop: StopRequest | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._grid, self.stop = grid, stop or StopRequest()
        self.clock, self._sleep = clock, sleep

    def sleep(self, seconds: float) -> None:
        with self.stop:
            self._sleep(seconds)

    def nodes(self, until: float) -> list[Node]:
        """The nodes that are online."""
        return self._patiently(lambda: [Node.of(info) for info in self._grid.get_nodes()], until)

    def push(self, messages: Sequence[Message], until: float) -> list[str | None]:
        """The id of each message; None where its node is not known to SuperLink any more."""
        if not messages:
            return []
        sent = set(self._patiently(lambda: list(self._grid.push_messages(list(messages))), until))
        ids = [message.metadata.message_id for message in messages]
        return [id if id and id in sent else None for id in ids]

    def replies(self, ids: Iterable[str], until: float) -> Iterator[tuple[str, Message | Refused]]:
        """(id of the message, its reply) as replies arrive: until all are there, or until then and one last look.

        What is delivered besides has the id that it claims to reply to.
        """
        waiting, pause = dict.fromkeys(ids), FIRST_PAUSE_S
        while waiting:
            last, before, lost = self.clock() >= until, len(waiting), None
            for id in list(waiting):
                try:
                    with self.stop:
                        found = list(self._grid.pull_messages([id]))
                except LOST as error:
                    lost = error
                    continue
                except httpx.HTTPStatusError as error:
                    LOG.debug("a reply cannot be pulled now: %s", error)
                    continue
                except RunNotRunningException:
                    raise _ended() from None
                except Interrupted:
                    raise
                except Exception as error:  # the content of a reply that flwr cannot read: SuperLink has dropped it
                    del waiting[id]
                    yield id, Refused("unreadable array", f"{type(error).__name__}: {error}")
                    continue
                if any(reply.metadata.reply_to_message_id == id for reply in found):
                    del waiting[id]
                yield from ((reply.metadata.reply_to_message_id, reply) for reply in found)
            if last and lost is not None:
                raise _unreachable(lost)
            if last or not waiting:
                return
            pause = FIRST_PAUSE_S if len(waiting) < before else min(LONGEST_PAUSE_S, GROWTH * pause)
            self.sleep(max(0.0, min(pause, until - self.clock())))

    def _patiently(self, call: Callable[[], T], until: float) -> T:
        """The result of a call, repeated while the connection is lost."""
        while True:
            try:
                with self.stop:
                    return call()
            except LOST as error:
                if self.clock() >= until:
                    raise _unreachable(error) from None
                LOG.warning("no connection to SuperLink (%s); trying again", error)
                self.sleep(LONGEST_PAUSE_S)
            except httpx.HTTPStatusError as error:
                raise _unreachable(error) from None
            except RunNotRunningException:
                raise _ended() from None


def _unreachable(error: Exception) -> Interrupted:
    return Interrupted(f"no connection to SuperLink ({error}); start the app again with the same run-dir to continue")


def _ended() -> Interrupted:
    return Interrupted("SuperLink has ended this run; start the app again with the same run-dir to continue")


def read_from(reply: Message | Refused, node: int, read: Callable[[Message], T]) -> T:
    """What `read` makes of a reply of this node; raise `Refused` if it is an error or cannot be read."""
    if isinstance(reply, Refused):
        raise reply
    reply_content(reply)
    if reply.metadata.src_node_id != node:
        raise Refused("unknown node", f"{reply.metadata.src_node_id} replied for {node}")
    try:
        return read(reply)
    except Refused:
        raise
    except Exception as error:  # a reply must never end the run
        LOG.debug("a reply cannot be read", exc_info=True)
        raise Refused("unreadable array", f"{type(error).__name__}: {error}") from None
