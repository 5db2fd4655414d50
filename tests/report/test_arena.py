"""Maps of where defences break: what is in the cells, and a page that needs nothing and says what the runs say."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dragfl.errors import DamagedRun
from dragfl.report import arena
from dragfl.report.arena import words
from dragfl.report.arena.names import attack_name, defence_name

from .conftest import write_run
from .test_page import Reader

PEOPLE = "3 of 12 clients attack"


def final(value: float) -> list[float]:
    """A curve that ends there; ten evaluations."""
    return [0.5] * 9 + [value]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four defences, two attacks, two seeds: one cell diverged, one defence cannot be set up, one run is missing."""
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
                write_run(
                    out / "runs" / name,
                    algorithm="fedavg" if defence == "krum" else defence,
                    seed=seed,
                    attack=None if attack == "none" else attack,
                    curve=final(value),
                )
                if (defence, attack) == ("drag", "alie"):
                    result = out / "runs" / name / "result.json"
                    result.write_text(json.dumps(json.loads(result.read_text()) | {"stopped_by": "diverged"}))
    plan = {
        "name": "test", "note": "A <quick> look.", "defences": ["fedavg", "br_drag", "drag", "krum"],
        "attacks": ["sign_flip", "alie"], "partitions": ["iid"], "attackers": [PEOPLE], "seeds": [0, 1],
        "trusted": ["br_drag"], "cells": cells,
    }  # fmt: skip
    (out / "arena.json").write_text(json.dumps(plan))
    return out


@pytest.fixture(scope="module")
def results(folder: Path) -> arena.Results:
    return arena.load(folder)


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    return arena.write(folder)


def test_worst_over_attacks_and_the_order_of_rows(results: arena.Results) -> None:
    """Means over two seeds that differ by 0.02; br_drag under alie has finished one of them."""
    (matrix,) = results.matrices
    assert matrix.defences == ("br_drag", "fedavg", "drag", "krum")  # worst 0.76, 0.21, 0.11, none
    assert [matrix.worst(d) for d in matrix.defences] == ["sign_flip", "sign_flip", "alie", None]
    assert matrix.worst_value("br_drag") == pytest.approx(0.76)
    assert matrix.worst_value("krum") is None
    assert matrix.lost("fedavg", "sign_flip") == pytest.approx(0.7)
    assert matrix.lost("krum", "alie") is None


def test_diverged_missing_and_impossible_cells(results: arena.Results) -> None:
    (matrix,) = results.matrices
    _, lines = words.grid(matrix)
    assert lines == [
        ["BR-DRAG †", "81.0 ± 1.4", "76.0 ± 1.4", "79.0", "76.0 ± 1.4"],
        ["FedAvg", "91.0 ± 1.4", "21.0 ± 1.4", "71.0 ± 1.4", "21.0 ± 1.4"],
        ["DRAG", "89.0 ± 1.4", "31.0 ± 1.4", "11.0 ± 1.4 ×", "11.0 ± 1.4 ×"],
        ["Krum", "61.0 ± 1.4", "n/a", "n/a", "n/a"],
    ]
    assert results.waiting == 1
    assert words.reasons(results) == [("Krum against every attack", "krum: f=6 needs at least 15 updates, got 12")]


def test_detection_and_cost_are_read_from_the_runs(results: arena.Results) -> None:
    """The telemetry is real: reversed and tripled updates stand out to rules with a reference; a mean has no score."""
    (matrix,) = results.matrices
    assert matrix.entries["fedavg", "sign_flip"].auc is None
    found = matrix.entries["br_drag", "sign_flip"].auc
    assert found is not None and found > 0.95
    assert matrix.entries["br_drag", "none"].auc is None  # nobody attacks
    assert results.seconds("fedavg") == pytest.approx(0.01)


def test_the_summary_is_true(results: arena.Results) -> None:
    told = words.summary(results)
    assert told.startswith("19 runs of 20 rounds with 12 clients, 2 seeds each; 3 of 12 clients attack.")
    assert "best worst case is 76.0 %, of BR-DRAG, which is given trusted data, under sign flip." in told
    assert "Without trusted data it is 21.0 %, of FedAvg." in told
    assert "2 of 3 defences lose more than half" in told and "1 run not finished." in told


def shown(matrix: arena.Matrix, width: int) -> str:
    console = Console(width=width, record=True, file=StringIO())
    for table in arena.rich_tables(matrix, width):
        console.print(table)
    return console.export_text()


def test_the_terminal_table_fits(results: arena.Results) -> None:
    (matrix,) = results.matrices
    text = shown(matrix, 100)
    assert "11.0 ×" in text and "attack" in text and "…" not in text and "±" not in text
    assert text.count("BR-DRAG †") == 1
    narrow = shown(matrix, 30)  # a table for the first columns, another for the rest
    assert narrow.count("BR-DRAG †") == 2 and narrow.count("76.0") == 3 and "…" not in narrow


def test_the_page_loads_nothing_and_escapes(page: Path) -> None:
    text = page.read_text()
    seen = Reader(text)
    assert "script" not in seen.tags and "link" not in seen.tags
    assert len(seen.loaded) == 5 and all(one.startswith("data:image/png;base64,") for one in seen.loaded)
    assert "http" not in text and all(len(alt) > 20 for alt in seen.alts)
    assert "A &lt;quick&gt; look." in text and "needs at least 15 updates" in text


def test_figures_are_written_twice(page: Path) -> None:
    names = {"arena-accuracy", "arena-loss", "arena-auc", "arena-roc", "arena-cost"}
    files = {path.name: path.stat().st_size for path in (page.parent / "figures").iterdir()}
    assert set(files) == {f"{name}.{ending}" for name in names for ending in ("png", "pdf")}
    assert all(size > 4000 for size in files.values())


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedRun, match="dragfl arena"):
        arena.load(tmp_path)
    (tmp_path / "arena.json").write_text('{"name": 3}')
    with pytest.raises(DamagedRun, match="missing or damaged"):
        arena.load(tmp_path)


def test_printed_names() -> None:
    assert defence_name("arc+nnm+trimmed_mean") == "ARC + NNM + trimmed mean"
    assert defence_name("multi_krum") == "Multi-Krum" and defence_name("mine:some_rule") == "Some rule"
    assert attack_name("none") == "no attack" and attack_name("dynamic_label_flip") == "dynamic label flip"
