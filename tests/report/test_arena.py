"""The matrix of an arena, its tables, figures and page."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dragfl import report
from dragfl.errors import DamagedRun
from dragfl.report import arena
from dragfl.report.arena.tables import (
    arena_facts,
    arena_headlines,
    explain_marks,
    format_detection,
    format_matrix,
    format_strengths,
    missing_cells,
    wrap_label,
)

from .conftest import write_run
from .test_html import Reader

PEOPLE = "3 of 12 clients attack"


def final(value: float) -> list[float]:
    """A curve that ends there; ten evaluations."""
    return [0.5] * 9 + [value]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arena(tmp_path_factory.mktemp("arena"))


def write_arena(out: Path) -> Path:
    """Four defences, two attacks, two seeds.

    Under alie drag diverged, and fedavg with one seed; one defence is refused, one run is missing. Under sign_flip a
    cohort has too many attackers in 20 % of rounds.
    """
    curves = {
        ("fedavg", "none"): 0.9,
        ("fedavg", "sign_flip"): 0.2,
        ("fedavg", "alie"): 0.7,
        ("br_drag", "none"): 0.8,
        ("br_drag", "sign_flip"): 0.75,
        ("br_drag", "alie"): 0.79,
        ("drag", "none"): 0.88,
        ("drag", "sign_flip"): 0.3,
        ("drag", "alie"): 0.1,
        ("krum", "none"): 0.6,
    }
    cells = []
    for seed in (0, 1):
        for defence in ("fedavg", "br_drag", "drag", "krum"):
            for attack in ("none", "sign_flip", "alie"):
                cell = {"defence": defence, "attack": attack, "partition": "iid", "seed": seed}
                cell |= {"attackers": None if attack == "none" else PEOPLE}
                if (defence, attack) not in curves:
                    cells.append({**cell, "reason": "krum: f=6 needs at least 15 updates, got 12"})
                    continue
                name = f"{defence}-{attack}-{seed}"
                cells.append({**cell, "run": f"runs/{name}"})
                if name == "br_drag-alie-1":
                    continue
                value = curves[defence, attack] + (0.02 if seed else 0.0)
                diverged = (defence, attack) == ("drag", "alie") or name == "fedavg-alie-1"
                write_run(
                    out / "runs" / name,
                    algorithm="fedavg" if defence == "krum" else defence,
                    seed=seed,
                    attack=None if attack == "none" else attack,
                    curve=final(value),
                    ran=15 if diverged else 20,
                    diverged=diverged,
                    spec={"attack.exceeds_f": 0.2 if attack == "sign_flip" else 0.01} if attack != "none" else {},
                )
    plan = {
        "name": "test", "note": "A <quick> look.", "defences": ["fedavg", "br_drag", "drag", "krum"],
        "attacks": ["sign_flip", "alie"], "partitions": ["iid"], "attackers": [PEOPLE], "seeds": [0, 1],
        "trusted": ["br_drag"], "cells": cells, "overlapped": [],
    }  # fmt: skip
    (out / "arena.json").write_text(json.dumps(plan))
    return out


@pytest.fixture(scope="module")
def results(folder: Path) -> arena.ArenaResults:
    return arena.load_arena(folder)


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    return report.write_arena_report(folder)


def test_worst_case_and_order_of_rows(results: arena.ArenaResults) -> None:
    """Means over two seeds that differ by 0.02; br_drag under alie has finished one of them."""
    (matrix,) = results.matrices
    assert matrix.defences == ("br_drag", "fedavg", "drag", "krum")  # worst 0.76, 0.21, 0.1, none
    worst = [matrix.worst_case(d) for d in matrix.defences]
    assert [case and case[1] for case in worst] == ["sign_flip", "sign_flip", "alie", None]
    assert worst[0] is not None and worst[0][0] == pytest.approx(0.76)
    assert matrix.accuracy_drop("fedavg", "sign_flip") == pytest.approx(0.7)
    assert matrix.accuracy_drop("krum", "alie") is None
    assert matrix.accuracy_drop("drag", "alie") == pytest.approx(0.89 - 0.1)  # 0.5 before it diverged


def test_cells_that_diverged_are_unfinished_or_refused(results: arena.ArenaResults) -> None:
    (matrix,) = results.matrices
    _, lines = format_matrix(matrix)
    assert lines == [
        ["br_drag †", "81.0 ± 1.4", "76.0 ± 1.4 ‡", "79.0", "76.0 ± 1.4 ‡"],
        ["fedavg", "91.0 ± 1.4", "21.0 ± 1.4 ‡", "40.0 ± 42.4 ×", "21.0 ± 1.4 ‡"],  # 0.7 and chance level, 0.1
        ["drag", "89.0 ± 1.4", "31.0 ± 1.4 ‡", "diverged at round 16", "diverged at round 16"],
        ["krum", "61.0 ± 1.4", "n/a", "n/a", "?"],
    ]
    assert results.unfinished == 1
    assert missing_cells(results) == [("krum", "sign_flip, alie", "krum: f=6 needs at least 15 updates, got 12")]


def test_detection_and_cost_are_read_from_the_runs(results: arena.ArenaResults) -> None:
    """Updates times -3 have a high suspicion score in rules with a reference; the mean has no score."""
    (matrix,) = results.matrices
    assert matrix.entries["fedavg", "sign_flip"].auc is None
    found = matrix.entries["br_drag", "sign_flip"].auc
    assert found is not None and found > 0.95
    assert matrix.entries["br_drag", "none"].auc is None
    assert results.seconds_per_round("fedavg") == pytest.approx(0.01)


def test_facts_and_their_one_line_summary(results: arena.ArenaResults) -> None:
    facts = dict(arena_facts(results) + arena_headlines(results))
    assert (facts["runs"], facts["not finished"], facts["rounds"], facts["clients"]) == ("19", "1", "20", "12")
    assert facts["seeds"] == "2"
    assert facts["best worst case"].startswith("76.0 % (br_drag †, sign_flip")
    assert facts["without trusted data"].startswith("21.0 % (fedavg, sign_flip")
    assert arena.summarize_arena(results).startswith("defences: 4; attacks: 2; runs: 19; not finished: 1;")


def test_a_worst_case_needs_a_result_of_every_attack(results: arena.ArenaResults) -> None:
    """FedAvg has 21 % under sign flip, but its failed run under ALIE may be worse: DRAG, diverged, is the best."""
    (matrix,) = results.matrices
    matrix = replace(matrix, entries={**matrix.entries, ("fedavg", "alie"): arena.Entry(failed={0: "boom"})})
    assert matrix.worst_case("fedavg") is None
    headlines = dict(arena_headlines(replace(results, matrices=(matrix,))))
    assert headlines["without trusted data"].startswith("diverged at round 16 (drag, alie")


def shown(matrix: arena.Matrix, width: int) -> str:
    console = Console(width=width, record=True, file=StringIO())
    for table in arena.rich_tables(matrix, width):
        console.print(table)
    return console.export_text()


def test_a_wide_table_is_split(results: arena.ArenaResults) -> None:
    (matrix,) = results.matrices
    text = shown(matrix, 100)
    assert "diverged at" in text and "round 16" in text and "40.0 ×" in text
    assert "attack" in text and "…" not in text and "±" not in text
    assert text.count("br_drag †") == 1
    narrow = shown(matrix, 40)  # a table for the first columns, another for the rest
    assert narrow.count("br_drag †") == 2 and narrow.count("76.0") == 3 and "…" not in narrow


def test_the_page_loads_nothing_from_outside_and_escapes(page: Path) -> None:
    text = page.read_text()
    seen = Reader(text)
    assert "link" not in seen.tags
    assert len(seen.loaded) == 5 and all(one.startswith("data:image/png;base64,") for one in seen.loaded)
    assert "://" not in text and all(seen.alts)
    assert "A &lt;quick&gt; look." in text and "needs at least 15 updates" in text


def test_every_figure_is_written_as_png_and_pdf(page: Path) -> None:
    names = {"arena-accuracy", "arena-loss", "arena-auc", "arena-roc", "arena-cost"}
    files = {path.name: path.stat().st_size for path in (page.parent / "figures").iterdir()}
    assert set(files) == {f"{name}.{ending}" for name in names for ending in ("png", "pdf")}
    assert all(size > 4000 for size in files.values())


def test_a_folder_without_an_arena_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DamagedRun, match="dragfl arena"):
        arena.load_arena(tmp_path)
    (tmp_path / "arena.json").write_text('{"name": 3}')
    with pytest.raises(DamagedRun, match="missing or damaged"):
        arena.load_arena(tmp_path)


def test_narrow_column_names_break_at_underscores() -> None:
    assert wrap_label("dynamic_label_flip") == "dynamic_\nlabel_\nflip"
    assert wrap_label("no attack") == "no\nattack" and wrap_label("min_max") == "min_max"


def test_a_diverged_run_is_explained(page: Path, results: arena.ArenaResults) -> None:
    (matrix,) = results.matrices
    _, lines = format_matrix(matrix)
    marks = explain_marks(text for line in lines for text in line)
    assert "diverged: counts as chance level (1 / classes)." in marks
    assert "×: at least one seed diverged" in marks and "‡: in more than 1 % of rounds" in marks
    assert "A run that diverged counts as chance level, 1 / classes." in page.read_text()
    assert '<td class="number">diverged at round 16</td>' in page.read_text()


def test_the_best_worst_case_may_be_a_diverged_run(tmp_path: Path) -> None:
    """The only defence diverged, which is no accuracy of 10 %."""
    run = {"defence": "drag", "partition": "iid", "seed": 0}
    for attack, diverged in ((None, False), ("alie", True)):
        write_run(tmp_path / "runs" / str(attack), attack=attack, ran=6, diverged=diverged)
    plan = {
        "name": "test", "note": "", "defences": ["drag"], "attacks": ["alie"], "partitions": ["iid"],
        "attackers": [PEOPLE], "seeds": [0], "trusted": [],
        "cells": [
            {**run, "attack": "none", "attackers": None, "run": "runs/None"},
            {**run, "attack": "alie", "attackers": PEOPLE, "run": "runs/alie"},
        ],
    }  # fmt: skip
    (tmp_path / "arena.json").write_text(json.dumps(plan))
    facts = dict(arena_headlines(arena.load_arena(tmp_path)))
    assert facts["best worst case"].startswith("diverged at round 7 (drag, alie")


def test_the_numbers_are_those_of_the_matrix(folder: Path) -> None:
    """Seeds 0 and 1 of fedavg under sign flip: 0.2 and 0.22, std sqrt(2) 0.01, drop 0.91 - 0.21."""
    numbers = report.arena_numbers(folder)
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert (numbers["runs"], numbers["unfinished"], numbers["no_times"]) == (19, 1, None)
    (matrix,) = numbers["matrices"]
    assert (matrix["partition"], matrix["attackers"], matrix["clients_add"]) == ("iid", PEOPLE, None)
    rows = {(d["defence"], a["attack"]): a for d in matrix["defences"] for a in d["attacks"]}
    flipped = rows["fedavg", "sign_flip"]
    low, high = flipped["accuracy"].pop("interval")
    assert low < 0.2 and high > 0.22
    assert flipped["accuracy"] == {
        "mean": pytest.approx(0.21), "std": pytest.approx(0.02 / 2**0.5), "seeds": [0, 1], "per_seed": [0.2, 0.22],
    }  # fmt: skip
    assert flipped["accuracy_drop"] == pytest.approx(0.7) and flipped["exceeds_f"] == 0.2
    assert flipped["detection"] is None, "the mean flags nobody, which is not a rate of 0"
    assert rows["drag", "alie"]["diverged_at"] == [16, 16]
    assert rows["krum", "alie"]["accuracy"] is None and "15 updates" in rows["krum", "alie"]["reason"]
    assert rows["br_drag", "alie"]["unfinished"] == 1
    assert matrix["defences"][0]["worst_case"] == {"accuracy": pytest.approx(0.76), "attack": "sign_flip"}


def test_detection_has_the_counts_of_every_client(folder: Path, results: arena.ArenaResults) -> None:
    """In the runs the clients 0 to 2 attack; eight of twelve clients are sampled in each of 20 rounds."""
    (matrix,) = report.arena_numbers(folder)["matrices"]
    (row,) = [d for d in matrix["defences"] if d["defence"] == "br_drag"]
    detection = row["attacks"][1]["detection"]
    clients = detection["clients"]
    assert detection["flagged_by"] == "suspicion" and len(set(map(len, clients.values()))) == 1
    assert set(zip(clients["client"], clients["seed"], strict=True)) == {(m, s) for m in range(12) for s in (0, 1)}
    for m, attacked, sampled, tpr, fpr in zip(
        clients["client"], clients["attacked"], clients["sampled"],
        clients["true_positive_rate"], clients["false_positive_rate"], strict=True,
    ):  # fmt: skip
        assert attacked == (sampled if m < 3 else 0)
        assert (tpr is None) == (m >= 3) and (fpr is None) == (m < 3)
    by_seed = []
    for seed in (0, 1):
        rows = [i for i, s in enumerate(clients["seed"]) if s == seed]
        caught, attacked = (sum(clients[name][i] for i in rows) for name in ("caught", "attacked"))
        by_seed.append(caught / attacked)
    assert detection["true_positive_rate"] == pytest.approx(sum(by_seed) / 2) and min(by_seed) > 0.9
    columns, lines = format_detection(results.matrices[0])
    table = {line[0]: dict(zip(columns, line, strict=True)) for line in lines}
    assert table["fedavg"]["sign_flip"] == "n/a" and table["krum"]["alie"] == "n/a"
    found = detection["true_positive_rate"], detection["false_positive_rate"], detection["auc"]
    assert table["br_drag †"]["sign_flip"] == f"{100 * found[0]:.0f} / {100 * found[1]:.0f}\n{found[2]:.2f}"


def control_arena(out: Path, worst: dict[str, float], **more: object) -> arena.ArenaResults:
    """One attack, one seed; the accuracy of each defence under it."""
    cells: list[dict[str, object]] = []
    for defence, value in worst.items():
        for attack in ("none", "alie"):
            name = f"{defence}-{attack}"
            kind = None if attack == "none" else attack
            write_run(out / "runs" / name, algorithm="fedavg", curve=final(value), attack=kind)
            cells.append({"defence": defence, "attack": attack, "partition": "iid", "seed": 0, "run": f"runs/{name}"})
            cells[-1]["attackers"] = None if attack == "none" else PEOPLE
    plan = {
        "name": "test", "note": "", "defences": list(worst), "attacks": ["alie"], "partitions": ["iid"],
        "attackers": [PEOPLE], "seeds": [0], "trusted": [d for d in worst if d != "fedavg"], "cells": cells, **more,
    }  # fmt: skip
    (out / "arena.json").write_text(json.dumps(plan))
    return arena.load_arena(out)


@pytest.mark.parametrize(
    ("best", "fact"),
    [
        (0.874, "2.2 points: worst case 87.4 % with br_drag, 85.2 % with the root data alone"),
        (0.844, "nothing: worst case 84.4 % with br_drag, 85.2 % with the root data alone"),
        (0.852, "nothing: worst case 85.2 % with br_drag, 85.2 % with the root data alone"),
    ],
)
def test_the_headline_says_what_the_clients_add(tmp_path: Path, best: float, fact: str) -> None:
    results = control_arena(tmp_path, {"fedavg": 0.9, "fltrust": 0.6, "br_drag": best, "root_only": 0.852})
    assert dict(arena_headlines(results))["what the clients add"] == fact
    assert fact in arena.summarize_arena(results)
    (matrix,) = report.arena_numbers(tmp_path)["matrices"]
    assert matrix["clients_add"] == {
        "defence": "br_drag", "attack": "alie", "worst_case": best, "root_only": 0.852,
        "difference": pytest.approx(best - 0.852),
    }  # fmt: skip


def test_without_a_rule_with_root_data_there_is_no_such_headline(tmp_path: Path) -> None:
    assert "what the clients add" not in dict(
        arena_headlines(control_arena(tmp_path, {"fedavg": 0.9, "root_only": 0.8}))
    )


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ({"overlapped": ["fedavg-none"]}, "1 of 2 runs were executed in parallel"),
        ({}, "not recorded"),
        ({"overlapped": []}, ""),
    ],
)
def test_times_are_shown_only_if_no_two_runs_overlapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: dict[str, object], reason: str
) -> None:
    monkeypatch.setattr("dragfl.report.arena.figures.draw_matrix", lambda *_: [])
    results = control_arena(tmp_path, {"fedavg": 0.9}, **stored)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "arena-cost.png").write_bytes(b"of an earlier page")
    assert reason in results.no_times and bool(reason) == bool(results.no_times)
    assert (results.seconds_per_round("fedavg") is None) == bool(reason)
    text = report.write_arena_report(tmp_path).read_text()
    assert ("No times of a round" in text) == bool(reason)
    assert (tmp_path / "figures" / "arena-cost.png").exists() != bool(reason)


def test_selected_strengths_are_a_table(tmp_path: Path) -> None:
    key = {"defence": "fedavg", "attack": "alie", "partition": "iid", "attackers": PEOPLE}
    tuned = {"seed": 100, "strengths": [{**key, "setting": "z", "selected": 1.5, "candidates": [None, 1.5]}]}
    results = control_arena(tmp_path, {"fedavg": 0.9, "median": 0.8}, tuning=tuned)
    assert format_strengths(results.matrices[0]) == (
        ["defence", "alie"],
        [["fedavg", "z = 1.5"], ["median †", "as it is"]],
    )
    (matrix,) = report.arena_numbers(tmp_path)["matrices"]
    assert matrix["defences"][0]["attacks"][1]["strength"] == {"setting": "z", "selected": 1.5}


def test_a_failed_cell_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragfl.report.arena.figures.draw_matrix", lambda *_: [])
    control_arena(tmp_path, {"fedavg": 0.9, "median": 0.8})
    plan = json.loads((tmp_path / "arena.json").read_text())
    plan["cells"][1] |= {"run": "runs/never", "failed": "ValueError: boom (mine.py, line 3)"}
    (tmp_path / "arena.json").write_text(json.dumps(plan))
    results = arena.load_arena(tmp_path)
    _, lines = format_matrix(results.matrices[0])
    assert lines[-1] == ["fedavg", "90.0", "failed", "?"] and results.unfinished == 0
    assert missing_cells(results) == [("fedavg", "alie", "ValueError: boom (mine.py, line 3)")]
    assert "boom (mine.py, line 3)" in report.write_arena_report(tmp_path).read_text()
