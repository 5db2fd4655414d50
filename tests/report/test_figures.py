"""What the figures are drawn from; that they look right is for eyes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dragfl import functional, report
from dragfl.report.figures import arrows, clients, style
from dragfl.report.series import cells, metric, series, smooth, split

from .conftest import MakeRun


def test_tables_need_neither_torch_nor_matplotlib(make_run: MakeRun) -> None:
    code = (
        "import sys; from dragfl import report; rows = report.table(sys.argv[1]); report.rich_table(rows); "
        "print([name for name in ('torch', 'matplotlib', 'jinja2', 'dragfl.engine') if name in sys.modules])"
    )
    path = str(make_run("one").path)
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_mean_over_seeds_stops_where_a_seed_does(make_run: MakeRun) -> None:
    """Seed 0 ends at round 4, seed 1 goes on: mean and band for rounds 2 and 4, then a thin line of seed 1 alone."""
    make_run("a", seed=0, ran=4, curve=[0.2, 0.4])
    make_run("b", seed=1, ran=8, curve=[0.4, 0.8, 0.9, 1.0])
    run = make_run("c", seed=2, ran=2, curve=[0.9], finished=False)
    (group,) = report.group_runs(report.find_runs(run.path.parent))
    line = series(group, metric("accuracy"))
    assert line.x == [2, 4]
    assert line.mean == pytest.approx([0.3, 0.6])
    assert (line.low, line.high) == ([0.2, 0.4], [0.4, 0.8])
    assert line.loose == [[(4, 0.8), (6, 0.9), (8, 1.0)]]


def test_words_for_numbers_that_are_not(make_run: MakeRun) -> None:
    run = make_run("a", ran=1)
    lines = [{"round": 1, "loss": "nan"}, {"round": 2, "loss": 0.5}, {"round": 3, "loss": None}, {"round": 4}]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert metric("loss")(report.find_runs(run.path)[0]) == [(2, 0.5)]


def test_running_mean() -> None:
    assert smooth([1, 2, 6, 3], 3) == pytest.approx([1.5, 3, 11 / 3, 4.5])
    assert smooth([1, 2], 1) == [1, 2]


def _telemetry(make_run: MakeRun, lines: list[dict[str, object]]) -> report.Group:
    run = make_run("a", ran=1)
    (run.path / "clients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (group,) = report.group_runs(report.find_runs(run.path))
    return group


def test_cells_put_attackers_first_and_keep_the_unsampled_blank(make_run: MakeRun) -> None:
    group = _telemetry(
        make_run,
        [
            {"round": 1, "client": [0, 2], "attacker": [False, True], "divergence": [0.1, 0.4], "cosine": [0.5, -0.5]},
            {"round": 2, "client": [1, 2], "attacker": [False, True], "divergence": [0.2, None], "cosine": [0.6, None]},
        ],
    )
    found = cells(group.runs[0], ("divergence", "suspicion"))
    assert found is not None
    assert (found.clients, found.attackers, found.rounds, found.redrawn) == ([2, 0, 1], 1, [1, 2], [])
    np.testing.assert_equal(found.value, [[0.4, math.inf], [0.1, math.nan], [math.nan, 0.2]])
    assert split(group.runs, "cosine") == ([0.5, 0.6], [-0.5])


def test_attackers_drawn_anew_are_marked_by_cell(make_run: MakeRun) -> None:
    group = _telemetry(
        make_run,
        [
            {"round": 1, "client": [0, 1], "attacker": [False, True], "suspicion": [0.1, 0.4]},
            {"round": 2, "client": [0, 1], "attacker": [True, False], "suspicion": [0.2, 0.3]},
        ],
    )
    found = cells(group.runs[0], ("divergence", "suspicion"))
    assert found is not None
    assert (found.key, found.attackers, sorted(found.redrawn)) == ("suspicion", 0, [(0, 1), (1, 0)])


def test_many_clients_and_rounds_are_thinned() -> None:
    value = np.tile(np.arange(1000.0), (500, 1))
    rows, attackers = clients._fewer_rows(value, 50)
    assert len(rows) == clients.MOST_ROWS and attackers == 30
    binned = clients._binned(rows)
    assert binned.shape[1] <= clients.MOST_COLUMNS
    assert binned[0, 0] == pytest.approx(np.arange(5).mean())


def test_labels_keep_apart_and_in_order() -> None:
    placed = style.spread({0: 0.5, 1: 0.51, 2: 0.9, 3: 1.0}, gap=0.1)
    assert placed[1] - placed[0] == pytest.approx(0.1)
    assert placed[3] - placed[2] >= 0.1 - 1e-9
    assert placed[3] <= 1.0 + 1e-9


def test_a_colour_for_each_algorithm_and_a_dash_for_each_attack(make_run: MakeRun) -> None:
    for algorithm in ("drag", "fedavg"):
        for attack in (None, "sign_flip"):
            run = make_run(f"{algorithm}-{attack}", algorithm=algorithm, attack=attack)
    groups = report.group_runs(report.find_runs(run.path.parent))
    pens = {group.label: pen for group, pen in zip(groups, style.pens(groups), strict=True)}
    assert pens["DRAG · no attack"].colour == pens["DRAG · sign_flip"].colour == style.BLUE
    assert pens["FedAvg · sign_flip"].colour == style.BLACK
    assert pens["DRAG · sign_flip"].dash == pens["FedAvg · sign_flip"].dash != pens["DRAG · no attack"].dash


def test_explanations_are_computed(tmp_path: Path) -> None:
    """The words under the arrows come from the arithmetic: lambda = 1 - cos 65 deg, <v, r/|r|> = x + (1 - x)^2."""
    written = {figure.name: figure for figure in report.figures.explain(tmp_path)}
    assert written["attack"].png.stat().st_size > 4000 and written["dragging"].pdf.stat().st_size > 4000
    x = math.cos(math.radians(65))
    assert f"With λ = {1 - x:.2f} the component along r grows from {x:.2f} to {x + (1 - x) ** 2:.2f}" in (
        written["dragging"].caption
    )
    together = np.concatenate([arrows.HONEST_UPDATES, arrows.FACTORS[:, None] * arrows.CLEAN])
    assert f"shrinks to {np.linalg.norm(functional.mean(together)):.2f}" in written["attack"].caption
