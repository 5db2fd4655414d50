"""The matrix of an arena, its tables, figures and page."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dragfl import report
from dragfl.errors import DamagedRun
from dragfl.report import arena
from dragfl.report.arena.tables import arena_facts, explain_marks, format_matrix, missing_cells, wrap_label

from .conftest import write_run
from .test_html import Reader

PEOPLE = "3 of 12 clients attack"


def final(value: float) -> list[float]:
    """A curve that ends there; ten evaluations."""
    return [0.5] * 9 + [value]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four defences, two attacks, two seeds.

    Under alie drag diverged, and fedavg with one seed; one defence is refused, one run is missing. Under sign_flip a
    cohort has too many attackers in 20 % of rounds.
    """
    out = tmp_path_factory.mktemp("arena")
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
        "trusted": ["br_drag"], "cells": cells,
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
        ["krum", "61.0 ± 1.4", "n/a", "n/a", "n/a"],
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
    facts = dict(arena_facts(results))
    assert (facts["runs"], facts["not finished"], facts["rounds"], facts["clients"]) == ("19", "1", "20", "12")
    assert facts["seeds"] == "2"
    assert facts["best worst case"].startswith("76.0 % (br_drag †, sign_flip")
    assert facts["without trusted data"].startswith("21.0 % (fedavg, sign_flip")
    assert arena.summarize_arena(results).startswith("defences: 4; attacks: 2; runs: 19; not finished: 1;")


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
    assert "script" not in seen.tags and "link" not in seen.tags
    assert len(seen.loaded) == 5 and all(one.startswith("data:image/png;base64,") for one in seen.loaded)
    assert "http" not in text and all(seen.alts)
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
    facts = dict(arena_facts(arena.load_arena(tmp_path)))
    assert facts["best worst case"].startswith("diverged at round 7 (drag, alie")
