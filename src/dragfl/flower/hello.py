"""The first message to a new node: which part of the data it holds, and which version of dragfl. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from dragfl.errors import SpecError
from dragfl.flower.records import Refused, reply_content

ORDER, REPLY = "order", "reply"  # names of the ConfigRecords of messages and of replies
PARTITION_ID = "partition-id"  # of node-config
MAX_PARTITION = 2**31 - 1
VERSION = re.compile(r"[\w.+!-]{1,40}", re.ASCII)  # it is logged


@dataclass(frozen=True)
class Hello:
    """What a node says of itself."""

    partition: int | None  # `partition-id` of its node-config
    version: str  # of dragfl


def hello_message(run: str, nonce: str, node: int, ttl: float) -> Message:
    """Ask a node for its `Hello`."""
    content = RecordDict({ORDER: ConfigRecord({"run": run, "nonce": nonce})})
    return Message(content, node, f"{MessageType.QUERY}.hello", ttl=ttl, group_id="0")


def hello_reply(message: Message, node_config: Mapping[str, Any]) -> Message:
    """The node's answer."""
    nonce = message.content.config_records[ORDER]["nonce"]
    partition = partition_id(node_config)
    given = {} if partition is None else {"partition": partition}
    return Message(
        RecordDict({REPLY: ConfigRecord({"nonce": nonce, "version": version("dragfl"), **given})}), reply_to=message
    )


def read_hello(reply: Message, nonce: str) -> Hello:
    """The checked answer of a node; raise `Refused` otherwise."""
    config = read_reply(reply, nonce)
    partition, written = config.get("partition"), config.get("version")
    if partition is not None and not _is_partition(partition):
        raise Refused("bad metric", f"partition-id = {partition!r:.80}; expected 0 to {MAX_PARTITION}")
    if not isinstance(written, str) or not VERSION.fullmatch(written):
        raise Refused("bad metric", f"version of dragfl: {written!r:.80}")
    return Hello(partition, written)  # type: ignore[arg-type]


def read_reply(reply: Message, nonce: str) -> ConfigRecord:
    """The ConfigRecord of a reply; raise `Refused` where the reply is an error or answers another message."""
    config = reply_content(reply).get(REPLY)
    if not isinstance(config, ConfigRecord):
        raise Refused("missing record", f"no ConfigRecord '{REPLY}'")
    if config.get("nonce") != nonce:
        raise Refused("stale", "its nonce is that of another message")
    return config


def partition_id(node_config: Mapping[str, Any]) -> int | None:
    """`partition-id` of a node-config, if it is given."""
    value = node_config.get(PARTITION_ID)
    if value is not None and not _is_partition(value):
        raise SpecError(f"node-config: {PARTITION_ID} = {value!r}; give a whole number from 0 to {MAX_PARTITION}")
    return value


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_PARTITION
