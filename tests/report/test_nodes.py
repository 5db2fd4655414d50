"""The nodes of a run on Flower: counts by hand, in the terminal, on the page and in JSON."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dragfl import report
from dragfl.cli import main
from dragfl.cli.output import print_result
from dragfl.errors import DamagedRun
from dragfl.report.nodes import describe_missing, node_rows, node_values, rich_node_table
from dragfl.runs.directory import Run, load_run

from .conftest import MakeRun

BIG = str(2**64 - 1)


def on_flower(run: Run, rounds: Sequence[dict[str, Any]], names: Sequence[str]) -> Run:
    """The run with these rounds of clients.jsonl and with the roster of these names."""
    lines = [{"round": t, **columns} for t, columns in enumerate(rounds, 1)]
    (run.path / "clients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    nodes = [
        {
            "client": m,
            "node": BIG if m == 0 else str(m),
            "name": name,
            "key": "ab" * 32,
            "partition": m,
            "first_round": 1,
        }
        for m, name in enumerate(names)
    ]
    (run.path / "nodes.json").write_text(json.dumps({"format": 1, "nodes": nodes}))
    return load_run(run.path)


def a_round(
    clients: Sequence[int], reasons: Sequence[str | None] = (), not_finite: Sequence[int] = ()
) -> dict[str, Any]:
    missing = list(reasons) or [None] * len(clients)
    dropped = [r is not None or m in not_finite for m, r in zip(clients, missing, strict=True)]
    steps = [0 if r is not None else 5 for r in missing]
    line = {"client": list(clients), "dropped": dropped, "steps": steps}
    return line | ({"reason": missing} if reasons else {})


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    """Four clients, of which the last never had a node; client 3 is sampled in rounds 2 and 4 only."""
    rounds = [
        a_round([0, 1, 2]),
        a_round([0, 1, 3], [None, "offline", "offline"]),
        a_round([0, 1, 2], ["wrong shape", "offline", None]),
        a_round([1, 2, 3], ["no reply", None, "offline"], not_finite=[2]),
    ]
    return on_flower(make_run("one", rounds=4), rounds, ["lab <b>", "hospital", "phone[1]"])


def test_counts_by_client_and_reason(run: Run) -> None:
    rows = {row.client: row for row in node_rows(run)}
    assert {m: (row.name, row.sampled, row.used) for m, row in rows.items()} == {
        0: ("lab <b>", 3, 2), 1: ("hospital", 4, 1), 2: ("phone[1]", 3, 2), 3: (None, 2, 0),
    }  # fmt: skip
    assert rows[0].missing == {"wrong shape": (3,)}
    assert rows[1].missing == {"offline": (2, 3), "no reply": (4,)}
    assert rows[2].missing == {"not finite": (4,)}
    assert rows[3].missing == {"offline": (2, 4)}
    assert describe_missing(list(rows.values())) == "7 of 12"
    assert rows[1].cells() == ["hospital", "1", "1 of 4", "offline: 2 (rounds 2, 3)\nno reply: 1 (round 4)"]
    assert run.nodes[0]["node"] == BIG


def test_a_run_in_the_simulator_has_no_nodes(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    run = make_run("one", rounds=2)
    assert run.nodes == {} and node_rows(run) == []
    assert "nodes" not in report.read_summary(run).values()
    assert "<h2>Nodes</h2>" not in report.write_report(run, tmp_path).read_text()


def test_reasons_without_a_roster_are_listed(make_run: MakeRun) -> None:
    named = a_round([0, 1]) | {"node": ["lab", None]}
    run = on_flower(make_run("one", rounds=2), [named, a_round([0, 1], ["offline", None])], [])
    (run.path / "nodes.json").unlink()
    assert [row.cells() for row in node_rows(load_run(run.path))] == [
        ["lab", "0", "1 of 2", "offline: 1 (round 2)"],
        ["—", "1", "2 of 2", "—"],
    ]


def test_the_page_the_terminal_and_json_agree(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    page = report.write_report(run, tmp_path).read_text()
    assert "7 of 12 results are missing" in page and "lab &lt;b&gt;" in page
    assert "offline: 2 (rounds 2, 3)\nno reply: 1 (round 4)" in page
    assert "<dt>missing results</dt><dd>7 of 12</dd>" in page
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["report", str(run.path), "--no-figures"]) == 0
    text = capsys.readouterr().out
    assert "drag: 4 nodes, 7 of 12 results are missing" in text and "phone[1]" in text
    assert main(["report", str(run.path), "--no-figures", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["nodes"]
    assert found["run"] == str(run.path) and found["label"] == "drag"
    assert found["nodes"][1] == {
        "client": 1, "node": "hospital", "sampled": 4, "used": 1, "missing": {"offline": [2, 3], "no reply": [4]},
    }  # fmt: skip


def test_the_result_of_a_run_lists_its_nodes(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_result(run, argparse.Namespace(json=False, quiet=False)) == 0
    assert "4 nodes, 7 of 12 results are missing" in capsys.readouterr().out
    (run.path / "clients.jsonl").write_text(json.dumps({"round": 1, **a_round([0, 1])}) + "\n")
    print_result(load_run(run.path), argparse.Namespace(json=False, quiet=False))
    assert "3 nodes, 0 of 2 results are missing\nrun directory" in capsys.readouterr().out
    print_result(run, argparse.Namespace(json=True, quiet=False))
    assert [row["used"] for row in json.loads(capsys.readouterr().out)["nodes"]] == [2, 1, 2, 0]


def test_seeds_are_told_apart(make_run: MakeRun) -> None:
    runs = [on_flower(make_run(f"s{s}", seed=s, rounds=1), [a_round([0])], ["a"]) for s in (0, 1)]
    values = node_values(report.group_runs(runs))
    assert [value["label"] for value in values] == ["drag, seed 0", "drag, seed 1"]


@pytest.mark.parametrize("width", [40, 60, 120])
def test_of_many_nodes_a_terminal_shows_those_with_missing_results(make_run: MakeRun, width: int) -> None:
    clients = list(range(50))
    reasons = [None if m != 7 else "norm above max_norm" for m in clients]
    run = on_flower(make_run("one", rounds=2), [a_round(clients, reasons)] * 2, [f"node{m}" for m in clients])
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(rich_node_table(node_rows(run)))
    text = console.export_text()
    assert "node7" in text and "node8" not in text
    assert max(map(len, text.splitlines())) <= width and "…" not in text


def test_many_rounds_are_a_span(make_run: MakeRun) -> None:
    rounds = [a_round([0], ["offline"] if t % 2 else []) for t in range(40)]
    run = on_flower(make_run("one", rounds=40), rounds, ["a"])
    assert node_rows(run)[0].cells()[-1] == "offline: 20 (between rounds 2 and 40)"


DAMAGED_ROSTERS = (
    "{",
    "[]",
    '{"nodes": [3]}',
    '{"nodes": [{"client": "x", "name": "a"}]}',
    '{"nodes": [], "digest": "of something else"}',
    "{}",
)


@pytest.mark.parametrize("text", DAMAGED_ROSTERS)
def test_a_damaged_roster_is_reported(make_run: MakeRun, text: str) -> None:
    good, bad = make_run("good", rounds=2), make_run("bad", rounds=2, seed=1)
    (bad.path / "nodes.json").write_text(text)
    (damaged,) = report.read_summary(good.path.parent).damaged
    assert "nodes.json" in damaged.reason
    with pytest.raises(DamagedRun, match=r"nodes\.json: cannot be read"):
        _ = bad.nodes
