"""Panels that are really run, on the embedded digits: resumed, shared, tuned on other seeds, and told without error."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dragfl.cli import main
from dragfl.errors import DataError
from dragfl.reproduction import data, results, summary
from dragfl.reproduction import figure as panel
from dragfl.reproduction.plan import TUNING_SEEDS, Scale, lay_out

SMALL = ("--rounds", "6", "data.dataset=digits", "model.hidden=8", "evaluation.every=2", "root.size=50", "--jobs", "1")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def ten_lines(folder: Path, target: float) -> int | None:
    """Rounds to target as anybody would compute it, from the log alone and with nothing of dragfl."""
    with (folder / "metrics.jsonl").open() as lines:
        for line in lines:
            row = json.loads(line)
            if "accuracy" in row and row["accuracy"] >= target:
                return int(row["round"])
    return None


def test_end_to_end(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run, judge, draw; then again with nothing left to do; rounds to target are those of the ten lines."""
    words = ["paper", "fig3a", "compositions3a", "--seeds", "2", *SMALL, "target_accuracy=0.2", "model.hidden=32"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("14 runs are missing; 1 at a time they take about ")  # 10 + 8 - 4 shared
    assert "run 14/14" in said and "all done" in said and "Changed on the command line: data.dataset=digits" in said
    assert "fig3a: EMNIST, all 40 clients" in said and "rounds to 20 %" in said and "SCAFFOLD + DRAG" in said
    assert "C1" in said and "C7a" in said and "NOT RUN" in said and (here / "paper/figures/fig3a.png").is_file()

    table = json.loads((here / "paper" / "verdicts.json").read_text())
    assert {row["verdict"] for row in table} <= {"PASS", "FAIL", "UNDECIDED", "NOT RUN"}
    assert next(row for row in table if row["claim"] == "C7a")["verdict"] == "NOT RUN"
    kept = results.load(here / "paper")["fig3a"]
    counted = 0
    for curve, records in kept.curves.items():
        for record in records.values():
            by_hand = ten_lines(here / "paper-runs" / record.run, 0.2)
            assert record.rounds_to(0.2) == by_hand, curve
            counted += by_hand is not None
    assert counted  # else nothing was compared
    assert main(["paper", "compositions3a", "--judge", *words[3:]]) == 0
    assert "no claim is judged by these panels" in capsys.readouterr().out
    told = next(row["measured"] for row in table if row["claim"] == "C1")
    seeds = [ten_lines(here / "paper-runs" / record.run, 0.2) for record in kept.curves["drag"].values()]
    assert told.startswith(f"DRAG {median(t for t in seeds if t is not None):g}, ") and None not in seeds

    assert main(words) == 0
    assert capsys.readouterr().out.startswith("every run is there already")
    assert results.load(here / "paper")["fig3a"] == kept


def test_controls_are_tuned_on_seeds_that_are_not_judged(here: Path) -> None:
    assert main(["paper", "controls3a", "--seeds", "1", *SMALL, "target_accuracy=0.9", "--quiet"]) == 0
    kept = results.load(here / "paper")["controls3a"]
    trials = [t for t in kept.tuning if t["curve"] == "fedavg_tuned"]
    assert {t["seed"] for t in kept.tuning} == set(TUNING_SEEDS) and kept.seeds == [0]
    assert [t["value"] for t in trials] == [1.0, 1.5, 2.0, 3.0, 4.0]
    best = min(trials, key=lambda t: (t["rounds"] or 1e9, -t["best"]))
    assert kept.tuned["fedavg_tuned"] == best["value"]
    chosen = kept.curves["fedavg_tuned"][0].run
    spec = (here / "paper-runs" / chosen / "spec.toml").read_text()
    assert f"lr = {best['value']}" in spec


def test_an_interrupted_panel_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in its third run; the same command ends with the same summary as one that was never stopped."""
    from dragfl.errors import Interrupted
    from dragfl.reproduction.runs import play
    from dragfl.runs.sweep import Callbacks

    one = panel.load("fig7")
    scale = Scale("digits", (0,), False, ("rounds=4", "model.hidden=8", "evaluation.every=2", "root.size=50"))
    seen = 0

    def count(_: Any) -> None:
        nonlocal seen
        seen += 1

    def calls(folder: str, stop_after: int) -> None:
        play([(one, scale)], here / folder, Callbacks(on_record=count, should_stop=lambda: seen >= stop_after))

    with pytest.raises(Interrupted, match=r"paper stopped with 2 of 7 runs finished"):
        calls("stopped", 10)
    assert len(summary.summarise(lay_out(one, scale, here / "stopped")).curves["clean"]) == 1
    calls("stopped", 10**9)
    calls("whole", 10**9)
    first, second = (summary.summarise(lay_out(one, scale, here / name)) for name in ("stopped", "whole"))
    assert _timeless(first) == _timeless(second)


def _timeless(made: summary.Summary) -> dict[str, Any]:
    return {
        curve: [(r.run, r.ended, r.accuracy, r.numbers) for r in records.values()]
        for curve, records in made.curves.items()
    }


def test_a_summary_survives_its_file(here: Path) -> None:
    assert main(["paper", "fig7", "--seeds", "1", *SMALL, "--quiet"]) == 0
    kept = results.load(here / "paper")["fig7"]
    summary.write(kept, here / "again.json")
    assert summary.read(here / "again.json") == kept
    numbers = kept.curves["br_drag"][0].numbers
    assert numbers["over_reference"] == 0.0 and numbers["reversed"] == 0.0 and 0.0 <= numbers["against"] <= 1.0
    assert (here / "paper" / "fig7.json").stat().st_size < 20_000


def test_quick_is_smaller_and_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "fig8", "--quick", *SMALL]) == 0
    said = capsys.readouterr().out
    assert "scaled-down look (--quick)" in said and "digits stands in for the data of the paper" in said
    assert results.load(here / "paper-quick")["fig8"].quick
    assert not (here / "paper-runs").exists()


def test_a_panel_without_data_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def nothing(name: str, progress: Any = None) -> None:
        tried.append(name)
        raise DataError(f"dataset {name}: not found, and nothing brought it. Tried:\n  - everything")

    monkeypatch.setattr(data, "describe_location", lambda name: f"not here: dragfl data get {name}")
    monkeypatch.setattr(data.data, "load", nothing)
    assert main(["paper", "fig3a", "fig3b", "--quick"]) == 3
    assert tried == ["mnist", "emnist47", "emnist"]  # each once, for both panels
    told = capsys.readouterr()
    assert "skipped, the data are not at hand: fig3a" in told.out and "Tried: - everything" in told.out
    assert main(["paper", "fig3a", "--quick", "--judge"]) == 0  # for that nothing is fetched
    assert "mnist: dataset mnist: not found" in told.out and "no panel has its data at hand" in told.err


def test_what_stands_in_for_emnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """EMNIST where it is at hand; in a quick look MNIST, which registries have, rather than a long download."""
    here: set[str] = set()
    fetched: list[str] = []
    monkeypatch.setattr(data, "describe_location", lambda name: "here" if name in here else "not here")
    monkeypatch.setattr(data.data, "load", lambda name, progress=None: fetched.append(name))
    assert data.Finder(quick=True).find(panel.load("fig3a")).dataset == "mnist" and fetched == ["mnist"]
    here.add("emnist47")
    assert data.Finder(quick=True).find(panel.load("fig3a")).dataset == "emnist47" and fetched == ["mnist"]
    here.add("emnist")
    assert data.Finder().find(panel.load("fig3a")).dataset == "emnist"


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "fig33"]) == 2
    assert "unknown panel 'fig33'" in capsys.readouterr().err
    assert main(["paper", "fig7", "seed=4"]) == 2
    assert "give --seeds" in capsys.readouterr().err
    for words, told in (
        (["--seeds", "0"], "--seeds: 0"),
        (["data.dataset=5"], "data.dataset: 5 is no name of a dataset"),
        (["data={dataset='digits'}"], "paper: data cannot be set here; give data.dataset=NAME"),
        (["--runs", __file__], "is not a folder"),
    ):
        assert main(["paper", "fig7", *words]) == 2
        assert told in capsys.readouterr().err


def test_judging_tells_nothing_of_another_scale(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A summary of 6 rounds is there; 5 rounds were never run, so every verdict that needs them is NOT RUN."""
    assert main(["paper", "fig7", "--seeds", "1", *SMALL, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["paper", "fig7", "--seeds", "1", *SMALL, "--rounds", "5", "--judge"]) == 0
    assert "0 PASS, 0 FAIL, 0 UNDECIDED" in capsys.readouterr().out
    (here / "paper" / "fig7.json").write_text("{")
    assert main(["paper", "fig8", *SMALL, "--judge"]) == 6
    assert "delete it, `dragfl paper fig7 --judge` makes it anew" in " ".join(capsys.readouterr().err.split())


def test_listing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "--list", "--quick", "data.dataset=digits"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in panel.names())
    assert main(["paper", "fig7", "--dry-run", "data.dataset=digits", "root.size=50"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 * 7
    assert main(["paper", "controls3a", "--list", "data.dataset=digits"]) == 0
    assert "22 runs, 22 missing" in capsys.readouterr().out  # 7 that tune, 6 of fig3a and FedExP, 6 to come
    assert main(["paper", "controls3a", "--dry-run", "data.dataset=digits"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "and 6 runs of controls, when they are tuned"
