"""One damaged run among many does not stop a report: it is listed with its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragfl import report
from dragfl.errors import DamagedRun
from dragfl.report.export import csv_text
from dragfl.report.find import load_runs
from dragfl.report.latex import latex_text

from .conftest import MakeRun, write_run

BROKEN = {
    "torn metrics": ("metrics.jsonl", "not json\n", "Expecting value"),
    "a list for a round": ("metrics.jsonl", "[1, 2]\n", "line 1 has no round"),
    "no round": ("metrics.jsonl", '{"round": 1}\n{"accuracy": 0.5}\n', "line 2 has no round"),
    "text for a number": ("metrics.jsonl", '{"round": 1, "accuracy": "high"}\n', "has accuracy = 'high', no number"),
    "a number for classes": ("metrics.jsonl", '{"round": 1, "class_accuracy": 0.5}\n', "class_accuracy = 0.5, no list"),
    "text for a class": ("metrics.jsonl", '{"round": 1, "class_accuracy": ["a"]}\n', "no list of numbers"),
    "rounds that are missing": ("metrics.jsonl", '{"round": 1}\n', "has 1 rounds, result.json has 2"),
    "seconds": ("timing.jsonl", '{"round": 1, "seconds": [2]}\n', "has seconds = [2], no number"),
    "timing": ("timing.jsonl", "{}\n", "line 1 has no round"),
    "clients": ("clients.jsonl", '{"round": 1, "client": [0, 1], "norm": [0.5]}\n', "equally long lists"),
    "no telemetry lists": ("clients.jsonl", '{"round": 1, "client": 3}\n', "equally long lists"),
    "spec": ("spec.toml", "= 3", "Invalid statement"),
    "a table that is none": ("spec.toml", 'algorithm = "drag"', "algorithm is no table"),
    "seed": ("spec.toml", 'seed = "one"', "seed = 'one' is no whole number"),
    "target": ("spec.toml", 'target_accuracy = "high"', "target_accuracy = 'high' is no number"),
    "partition": ("spec.toml", '[data]\npartition = "iid"', "data.partition is no table"),
    "bytes": ("result.json", '{"bytes_up": [1]}', "bytes_up = [1] is no number"),
    "an accuracy that is not finite": ("metrics.jsonl", '{"round": 1, "accuracy": NaN}\n', "has accuracy = nan"),
    "not text": ("run.json", "\x00\x01", "Expecting value"),
    "fingerprints": ("run.json", '{"fingerprints": [1]}', "fingerprints is no table"),
    "result": ("result.json", "[]", "expected a table"),
}


@pytest.mark.parametrize(("file", "text", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_damaged_run_is_listed_with_its_reason(make_run: MakeRun, file: str, text: str, reason: str) -> None:
    good = make_run("good", rounds=2)
    bad = make_run("bad", rounds=2, seed=1)
    (bad.path / file).write_text(text)
    summary = report.read_summary(good.path.parent)
    assert [row.seeds for row in summary.rows] == [(0,)]
    (damaged,) = summary.damaged
    assert damaged.path == bad.path
    assert reason in damaged.reason and file in damaged.reason
    with pytest.raises(DamagedRun, match=rf"no readable run; .*{file}"):
        report.read_summary(bad.path)


JUNK = ("junk", [1, 2], {"a": 1}, -5, 1.5, True, float("nan"), None)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("good", "bad")):
        write_run(folder / name, seed=seed, rounds=2, attack="sign_flip")
    return folder


@given(st.data())
def test_any_value_in_any_place_is_read_or_reported(two: Path, data: st.DataObject) -> None:
    """Replace one value of one file by junk: the report is made, with the run or with the reason why not."""
    names = ["run.json", "result.json", "metrics.jsonl", "timing.jsonl", "clients.jsonl"]
    file = two / "bad" / data.draw(st.sampled_from(names))
    whole = file.read_text()
    lines = [json.loads(line) for line in whole.splitlines()]
    key = data.draw(st.sampled_from(sorted(lines[-1])))
    lines[-1][key] = data.draw(st.sampled_from(JUNK))
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    try:
        summary = report.read_summary(two)
    finally:
        file.write_text(whole)
    assert len(summary.damaged) + sum(len(row.seeds) for row in summary.rows) == 2
    json.dumps(summary.values(), allow_nan=False)
    assert csv_text(summary.rows) and latex_text(summary.rows) and report.rich_tables(summary.rows, 80)


def test_a_missing_file(make_run: MakeRun) -> None:
    make_run("good", rounds=2)
    bad = make_run("bad", rounds=2, seed=1)
    (bad.path / "run.json").unlink()
    assert [run.path.name for run in load_runs(bad.path.parent).damaged] == ["bad"]


def test_telemetry_is_not_read_where_it_is_not_needed(make_run: MakeRun) -> None:
    run = make_run("one", rounds=2)
    (run.path / "clients.jsonl").write_text("torn\n")
    assert load_runs(run.path, clients=False).runs == [run]


def test_find_runs_warns(make_run: MakeRun) -> None:
    make_run("good", rounds=2)
    bad = make_run("bad", rounds=2, seed=1)
    (bad.path / "metrics.jsonl").write_text("torn\n")
    with pytest.warns(UserWarning, match=r"damaged, left out: .*bad/metrics\.jsonl"):
        assert len(report.find_runs(bad.path.parent)) == 1


def test_the_page_lists_damaged_runs(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    make_run("good", rounds=2)
    bad = make_run("bad", rounds=2, seed=1)
    (bad.path / "metrics.jsonl").write_text("torn\n")
    page = report.write_report(bad.path.parent, tmp_path / "out").read_text()
    assert "Damaged runs, left out" in page and "metrics.jsonl: cannot be read" in page
    assert "<dt>damaged</dt><dd>1</dd>" in page
    (bad.path / "metrics.jsonl").write_text('{"round": 1}\n{"round": 2}\n')
    assert "Damaged" not in report.write_report(bad.path.parent, tmp_path / "out").read_text()
