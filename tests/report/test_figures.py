"""The numbers that figures are drawn from."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from dragfl import functional, report
from dragfl.report.figures import clients, curves, illustrations, style
from dragfl.report.series import Series, client_table, group_series, points_by_round, running_mean, values_by_role

from .conftest import MakeRun


def test_tables_need_neither_torch_nor_matplotlib(make_run: MakeRun) -> None:
    code = (
        "import sys; from dragfl import report; rows = report.summarize_runs(sys.argv[1]); report.rich_table(rows); "
        "print([name for name in ('torch', 'matplotlib', 'jinja2', 'dragfl.engine') if name in sys.modules])"
    )
    path = str(make_run("one").path)
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_mean_over_seeds_stops_where_a_seed_does(make_run: MakeRun) -> None:
    """Seed 0 ends at round 4, seed 1 continues: mean and range for rounds 2 and 4, then a separate curve of seed 1."""
    make_run("a", seed=0, ran=4, curve=[0.2, 0.4])
    make_run("b", seed=1, ran=8, curve=[0.4, 0.8, 0.9, 1.0])
    run = make_run("c", seed=2, ran=2, curve=[0.9], finished=False)
    (group,) = report.group_runs(report.find_runs(run.path.parent))
    line = group_series(group, points_by_round("accuracy"))
    assert line.x == [2, 4]
    assert line.mean == pytest.approx([0.3, 0.6])
    assert (line.low, line.high) == ([0.2, 0.4], [0.4, 0.8])
    assert line.single == [[(4, 0.8), (6, 0.9), (8, 1.0)]]


def test_values_that_are_not_finite_are_left_out(make_run: MakeRun) -> None:
    run = make_run("a", ran=4)
    lines = [{"round": 1, "loss": "nan"}, {"round": 2, "loss": 0.5}, {"round": 3, "loss": None}, {"round": 4}]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert points_by_round("loss")(report.find_runs(run.path)[0]) == [(2, 0.5)]


def test_running_mean() -> None:
    assert running_mean([1, 2, 6, 3], 3) == pytest.approx([1.5, 3, 11 / 3, 4.5])
    assert running_mean([1, 2], 1) == [1, 2]


def write_telemetry(make_run: MakeRun, lines: list[dict[str, object]]) -> report.Group:
    run = make_run("a", ran=1)
    (run.path / "clients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (group,) = report.group_runs(report.find_runs(run.path))
    return group


def test_client_table_has_attackers_first_and_nan_where_not_sampled(make_run: MakeRun) -> None:
    group = write_telemetry(
        make_run,
        [
            {"round": 1, "client": [0, 2], "attacker": [False, True], "divergence": [0.1, 0.4], "cosine": [0.5, -0.5]},
            {"round": 2, "client": [1, 2], "attacker": [False, True], "divergence": [0.2, None], "cosine": [0.6, None]},
        ],
    )
    found = client_table(group.runs[0], ("divergence", "suspicion"))
    assert found is not None
    assert (found.clients, found.attackers, found.rounds, found.attacks) == ([2, 0, 1], 1, [1, 2], [])
    np.testing.assert_equal(found.value, [[0.4, math.inf], [0.1, math.nan], [math.nan, 0.2]])
    assert values_by_role(group.runs, "cosine") == ([0.5, 0.6], [-0.5])


def test_attackers_that_change_by_round_are_marked_by_cell(make_run: MakeRun) -> None:
    group = write_telemetry(
        make_run,
        [
            {"round": 1, "client": [0, 1], "attacker": [False, True], "suspicion": [0.1, 0.4]},
            {"round": 2, "client": [0, 1], "attacker": [True, False], "suspicion": [0.2, 0.3]},
        ],
    )
    found = client_table(group.runs[0], ("divergence", "suspicion"))
    assert found is not None
    assert (found.key, found.attackers, sorted(found.attacks)) == ("suspicion", 0, [(0, 1), (1, 0)])


def test_many_clients_and_rounds_are_reduced() -> None:
    value = np.tile(np.arange(1000.0), (500, 1))
    rows, attackers = clients.select_rows(value, 50)
    assert len(rows) == clients.MAX_ROWS and attackers == 30
    binned = clients.average_columns(rows)
    assert binned.shape[1] <= clients.MAX_COLUMNS
    assert binned[0, 0] == pytest.approx(np.arange(5).mean())


def test_the_legend_is_in_the_order_of_the_ends_of_the_lines() -> None:
    styles = [style.LineStyle(colour, "-") for colour in style.COLOURS]
    ends = {"low": 0.2, "high": 0.9, "middle": 0.5}
    series = [Series([1, 2], [0, y], [0, y], [0, y], []) for y in ends.values()]
    lines = list(zip(ends, series, styles, strict=False))
    (legend,) = style.draw_lines({"": lines}, height=2).legends
    assert [text.get_text() for text in legend.get_texts()] == ["high", "middle", "low"]


def test_one_colour_for_each_algorithm_and_one_dash_for_each_attack(make_run: MakeRun) -> None:
    for algorithm in ("drag", "brand_new"):
        for attack in (None, "sign_flip"):
            run = make_run(f"{algorithm}-{attack}", attack=attack, spec={"algorithm.name": algorithm})
    groups = report.group_runs(report.find_runs(run.path.parent))
    styles = {group.label: line for group, line in zip(groups, style.line_styles(groups), strict=True)}
    assert styles["drag · no attack"].colour == styles["drag · sign_flip"].colour
    assert styles["drag · no attack"].colour != styles["brand_new · no attack"].colour
    assert styles["drag · sign_flip"].dash == styles["brand_new · sign_flip"].dash != styles["drag · no attack"].dash


def test_numbers_in_the_captions_of_illustrations() -> None:
    """lambda = 1 - cos 65 deg = 1 - x, <g, r/|r|> = x, <v, r/|r|> = x + (1 - x)^2; the mean with attackers."""
    x = math.cos(math.radians(65))
    caption = illustrations.draw_dragging().caption
    assert f"λ = {1 - x:.2f}: from {x:.2f} to {x + (1 - x) ** 2:.2f}" in caption
    sent = illustrations.FACTORS[:, None] * illustrations.ATTACKERS_OWN_UPDATES
    attacked = functional.mean(np.concatenate([illustrations.HONEST_UPDATES, sent]))
    assert f"length {np.linalg.norm(attacked):.2f}" in illustrations.draw_attack().caption


def test_a_cross_at_the_end_of_each_diverged_run(make_run: MakeRun) -> None:
    """Seed 1 diverged in round 5, so its last evaluation is of round 4; seed 2 had none."""
    make_run("a", seed=0, ran=8, curve=[0.2, 0.4, 0.5, 0.6])
    make_run("b", seed=1, ran=4, curve=[0.4, 0.8], diverged=True)
    run = make_run("c", seed=2, ran=1, curve=[], diverged=True)
    (group,) = report.group_runs(report.find_runs(run.path.parent))
    assert group_series(group, points_by_round("accuracy")).diverged == [(4, 0.8)]
    drawing = curves.draw_accuracy([group])
    assert drawing is not None
    crosses = [line for line in drawing.figure.axes[0].lines if line.get_marker() == "x"]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in crosses] == [([4], [0.8])]
