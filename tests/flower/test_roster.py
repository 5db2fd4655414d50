"""Which node is which client: numbers, keys, restarts, and the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flwr.proto.node_pb2 import NodeInfo

from dragfl.errors import DamagedRun
from dragfl.flower.roster import Node, Roster

BIG = 2**64 - 1
KEY, OTHER_KEY = "ab" * 32, "cd" * 32


def plain(id: int) -> Node:
    return Node(id, "", "")


def test_a_node_is_known_by_a_digest_of_its_key() -> None:
    """sha256 of "key", as `printf key | sha256sum` prints it."""
    node = Node.of(NodeInfo(node_id=BIG, name="node0", public_key=b"key"))
    assert node == Node(BIG, "node0", "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683")
    assert Node.of(NodeInfo(node_id=7)) == plain(7)
    assert Node.of(NodeInfo(node_id=7, name="a\x1b[2J\nb")).name == "a [2J b", "names are printed"


def test_a_node_gets_its_partition_id_else_the_lowest_free_number() -> None:
    roster = Roster(4)
    asked = [(10, 2), (11, None), (12, 2), (13, 9)]
    given = [roster.admit(plain(id), partition, 1, roster.members) for id, partition in asked]
    assert [member and member.client for member in given] == [2, 0, 1, 3]
    assert roster.name(2) == "client-2" and roster.name(9) is None


def test_a_known_key_keeps_its_number_whatever_its_id_and_name() -> None:
    roster = Roster(3)
    roster.admit(Node(5, "a", KEY), 1, 1, {})
    online, new = roster.connected([Node(BIG, "b", KEY), plain(5)])
    assert list(online) == [1] and online[1].node == BIG and online[1].name == "b"
    assert new == [plain(5)]  # the id of an authenticated node, without its key
    assert roster.members == online


def test_the_number_of_a_key_is_never_given_to_another() -> None:
    roster = Roster(1)
    roster.admit(Node(5, "a", KEY), 0, 1, {})
    assert roster.admit(Node(5, "a", OTHER_KEY), 0, 2, {}) is None
    assert roster.admit(plain(6), 0, 2, {}) is None
    assert roster.members[0].key == KEY


def test_without_keys_a_number_is_free_when_its_node_is_offline() -> None:
    """Node 7 of three restarts as 17; while 7 counts as online, 17 gets nothing."""
    roster = Roster(3)
    for m, id in enumerate([6, 7, 8]):
        roster.admit(plain(id), m, 1, {})
    online, new = roster.connected([plain(6), plain(7), plain(8), plain(17)])
    assert new == [plain(17)] and roster.admit(plain(17), 1, 2, online) is None
    online, new = roster.connected([plain(6), plain(8), plain(17)])
    member = roster.admit(new[0], 1, 3, online)
    assert member is not None and (member.client, member.node, member.first_round) == (1, 17, 3)


def test_one_key_twice_counts_once() -> None:
    roster = Roster(2)
    roster.admit(Node(5, "a", KEY), None, 1, {})
    online, new = roster.connected([Node(6, "a", KEY), Node(7, "a", KEY)])
    assert online[0].node == 6 and [node.id for node in new] == [7]


def test_the_file_has_ids_as_text_and_gives_the_same_roster(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    roster = Roster(3, path)
    assert not path.exists()
    roster.admit(Node(BIG, "node0", KEY), 2, 1, {})
    roster.admit(plain(7), None, 4, {})
    row = {"client": 2, "node": str(BIG), "name": "node0", "key": KEY, "partition": 2, "first_round": 1}
    assert json.loads(path.read_text())["nodes"][1] == row
    assert Roster(3, path).members == roster.members
    Roster(3, path).connected([Node(9, "node0", KEY)])
    assert Roster(3, path).members[2].node == 9


GOOD = {"client": 0, "node": "5", "name": "a", "key": KEY, "partition": None, "first_round": 1}
WRONG: list[Any] = [
    "",
    "[]",
    {},
    {"format": 2, "nodes": []},
    {"format": 1, "nodes": 3},
    *(
        {"format": 1, "nodes": [{**GOOD, **change}]}
        for change in (
            {"client": 3},
            {"client": True},
            {"client": "0"},
            {"node": 5},
            {"node": "-5"},
            {"node": str(2**64)},
            {"name": None},
            {"key": "xyz"},
            {"partition": "1"},
            {"first_round": 0},
        )
    ),
    {"format": 1, "nodes": [{k: v for k, v in GOOD.items() if k != "key"}]},
    {"format": 1, "nodes": [GOOD, {**GOOD, "node": "6", "key": OTHER_KEY}]},
    {"format": 1, "nodes": [GOOD, {**GOOD, "client": 1, "key": OTHER_KEY}]},
    {"format": 1, "nodes": [GOOD, {**GOOD, "client": 1, "node": "6"}]},
]


@pytest.mark.parametrize("content", WRONG, ids=range(len(WRONG)))
def test_a_damaged_file_is_an_error_with_advice(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DamagedRun, match=r"nodes\.json: cannot be used .*restore the file"):
        Roster(3, path)


def test_a_changed_name_is_a_checksum_mismatch(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    Roster(3, path).admit(Node(5, "alice", ""), None, 1, {})
    assert Roster(3, path).name(0) == "alice"
    path.write_text(path.read_text().replace("alice", "alibe"))
    with pytest.raises(DamagedRun, match=r"nodes\.json: cannot be used \(checksum mismatch\)"):
        Roster(3, path)
