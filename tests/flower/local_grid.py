"""A Flower grid in memory: each message runs a ClientApp in this process. Replies can be lost, changed, doubled, late.

It behaves as flwr's HttpGrid with a SuperLink. Messages and replies are serialised; a reply is delivered once;
`get_nodes` lists nodes that are online. An exception in the ClientApp is error 2, an expired (or unknown, or delivered)
message error 3, an offline node error 5; errors 3 and 5 come from node 1 and are found by `reply_to_message_id`.

    grid = LocalGrid(app, [{"partition-id": i} for i in range(4)])
    grid.drop = lambda node, round: node == 1 and round == 2      # node: its position; round: the message's group_id

Time does not pass by itself: `grid.time()` is the clock, `grid.sleep(seconds)` moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Context, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.constant import SYSTEM_MESSAGE_TYPE
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

Handler = Callable[[Message, Context], Message]  # a ClientApp is one
FIRST_ID = 2**63 + 1001  # node ids of Flower are uint64
SUPERLINK = 1
RAISED, EXPIRED, OFFLINE = 2, 3, 5  # codes of flwr's errors
POLL_S = 3.0  # of send_and_receive


def set_identity() -> None:
    """Pretend to be inside a running task: outside of one, flwr makes no messages."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = SUPERLINK


@dataclass
class Sent:
    """A message that was pushed, until its reply is delivered."""

    message: Message
    node: int  # position
    due: float  # when the reply is there
    expires: float
    replies: list[Message]  # none: the reply was lost; two: it was doubled


class LocalGrid(Grid):
    """The nodes have the positions 0, 1, ...; `app` may be one for all or one for each.

    Hooks are attributes that tests set: `drop`, `doubled` and `delay` take (position, round), `tamper` takes a reply
    with content and returns the one to deliver, `offline` is a set of positions. `sent` lists (position, type, round).
    """

    def __init__(
        self,
        app: Handler | Sequence[Handler],
        node_configs: Sequence[Mapping[str, Any]],
        *,
        run_config: Mapping[str, Any] | None = None,
        names: Sequence[str] | None = None,
        keys: Sequence[bytes] | None = None,
        ids: Sequence[int] | None = None,
    ) -> None:
        set_identity()
        count = len(node_configs)
        self.apps = list(app) if isinstance(app, Sequence) else [app] * count
        self.ids = list(ids) if ids else [FIRST_ID + i for i in range(count)]
        self.names, self.keys = list(names or [""] * count), list(keys or [b""] * count)
        self.contexts = [
            Context(SUPERLINK, node, dict(config), RecordDict(), dict(run_config or {}))
            for node, config in zip(self.ids, node_configs, strict=True)
        ]
        self.drop: Callable[[int, int], bool] = lambda node, round: False
        self.doubled: Callable[[int, int], bool] = lambda node, round: False
        self.delay: Callable[[int, int], float] = lambda node, round: 0.0
        self.tamper: Callable[[Message], Message] = lambda reply: reply
        self.offline: set[int] = set()
        self.sent: list[tuple[int, str, int]] = []
        self.objects: set[str] = set()  # ids of the objects that were uploaded: equal arrays count once
        self._waiting: dict[str, Sent] = {}
        self._clock = 0.0
        self._run = Run.create_empty(SUPERLINK)

    def time(self) -> float:
        return self._clock

    def sleep(self, seconds: float) -> None:
        self._clock += seconds

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return [node.node_id for node in self.get_nodes()]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=node, name=self.names[i], public_key=self.keys[i], status="online")
            for i, node in enumerate(self.ids)
            if i not in self.offline
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the ClientApp of each message. The id of a message to an unknown node is empty."""
        if not isinstance(messages, Sequence):
            raise TypeError("HttpGrid iterates twice over the messages; give a list")
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            self.objects |= get_all_nested_objects(message).keys()
        if message.metadata.dst_node_id not in self.ids:
            return ""
        id, node = message.metadata.message_id, self.ids.index(message.metadata.dst_node_id)
        round = int(message.metadata.group_id or 0)
        self.sent.append((node, message.metadata.message_type, round))
        due = self._clock + self.delay(node, round)
        replies = [] if node in self.offline else [self._reply(node, message)]
        replies = [] if self.drop(node, round) else replies * (2 if self.doubled(node, round) else 1)
        self._waiting[id] = Sent(message, node, due, self._clock + message.metadata.ttl, replies)
        return id

    def _reply(self, node: int, message: Message) -> Message:
        received = over_the_wire(message)
        try:
            reply = self.apps[node](received, self.contexts[node])
        except Exception as error:  # as flwr's runner of ClientApps does
            return over_the_wire(Message(Error(RAISED, f"{type(error)}:<'{error}'>"), reply_to=received))
        return over_the_wire(self.tamper(reply) if reply.has_content() else reply)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there, each delivered once."""
        found: list[Message] = []
        for id in list(message_ids):
            sent = self._waiting.get(id)
            if sent is None or self._clock > sent.expires:
                replies = [_superlink_error(id, EXPIRED, "the message is not available", SYSTEM_MESSAGE_TYPE)]
            elif sent.node in self.offline:
                kind = sent.message.metadata.message_type
                replies = [_superlink_error(id, OFFLINE, "the node is not available", kind)]
            else:
                replies = sent.replies if self._clock >= sent.due else []
            if replies:
                self._waiting.pop(id, None)
                found += replies
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        waiting = set(self.push_messages(messages))
        replies: list[Message] = []
        end = self._clock + (float("inf") if timeout is None else timeout)
        while self._clock < end:
            found = list(self.pull_messages(waiting))
            replies += found
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            if not waiting:
                break
            self.sleep(POLL_S)
        return replies


def over_the_wire(message: Message) -> Message:
    """The message as the other side receives it: serialised and read again."""
    with no_object_id_recompute():
        id, objects = message.object_id, get_all_nested_objects(message)
        copy = inflate_object_from_contents(id, {name: value.deflate() for name, value in objects.items()})
    assert isinstance(copy, Message)
    copy.metadata.__dict__["_message_id"] = id
    return copy


def _superlink_error(message_id: str, code: int, reason: str, message_type: str) -> Message:
    metadata = Metadata(
        run_id=SUPERLINK,
        message_id="",
        src_node_id=SUPERLINK,
        dst_node_id=SUPERLINK,
        reply_to_message_id=message_id,
        group_id="",
        created_at=0.0,
        ttl=0.0,
        message_type=message_type,
    )
    return make_message(metadata=metadata, error=Error(code, reason))
