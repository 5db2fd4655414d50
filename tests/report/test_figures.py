"""The numbers that figures are drawn from."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Annotation, Text

from dragfl import functional, report
from dragfl.report.figures import chart, clients, curves, illustrations, style
from dragfl.report.figures.end_labels import label_ends, spread
from dragfl.report.series import Series, client_table, group_series, points_by_round, running_mean, values_by_role

from .conftest import MakeRun


def test_tables_need_neither_torch_nor_matplotlib(make_run: MakeRun) -> None:
    code = (
        "import sys; from dragfl import report; rows = report.summarize_runs(sys.argv[1]); report.rich_tables(rows); "
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


def line(name: str, end: tuple[float, float], colour: str = style.BLUE) -> style.Line:
    x, y = [0.0, end[0]], [0.0, end[1]]
    return name, Series(x, y, y, y, []), style.LineStyle(colour, "-")


def test_the_legend_of_several_columns_is_in_the_order_of_the_ends_of_the_lines() -> None:
    lines = [line("low", (2, 0.2)), line("high", (2, 0.9)), line("middle", (2, 0.5))]
    (legend,) = style.draw_lines({"a": lines, "b": lines[:1]}, height=2, columns=2).legends
    assert [text.get_text() for text in legend.get_texts()] == ["high", "middle", "low"]


def written(ax: Axes) -> dict[str, Annotation]:
    ax.figure.draw_without_rendering()
    return {text.get_text(): text for text in ax.texts}


def test_a_name_is_at_the_end_of_its_line_also_where_it_stops_early() -> None:
    plots = {"": [line("long", (100, 0.9)), line("short", (20, 0.4)), line("nearly as long", (97, 0.2))]}
    figure = style.draw_lines(plots, height=3)
    label_ends(figure, plots)
    (ax,) = figure.axes
    names = written(ax)
    assert not figure.legends
    for name, end in (("long", (100, 0.9)), ("short", (20, 0.4)), ("nearly as long", (97, 0.2))):
        x, y = ax.transData.transform(end)
        box = names[name].get_window_extent()
        assert box.y0 < y < box.y1 and x < box.x0, name
        assert (box.x1 < ax.bbox.x1) == (name == "short"), "only a name that has space is inside the plot"
    x, _ = ax.transData.transform((20, 0.4))
    assert names["short"].get_window_extent().x0 - x < 0.1 * ax.bbox.width


@pytest.mark.parametrize("ends", [[(10, 0.5)] * 12, [(3, 0.5)] * 6 + [(10, 0.5)] * 6])
def test_names_do_not_cover_each_other(ends: list[tuple[float, float]]) -> None:
    plots = {"": [line(f"run {i}", end) for i, end in enumerate(ends)]}
    figure = style.draw_lines(plots, height=2)
    label_ends(figure, plots)
    boxes = [Text.get_window_extent(text) for text in written(figure.axes[0]).values()]
    assert len(boxes) == 12
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([5.0, 0.0, 0.5], [5.0, -0.25, 0.75]),  # two are too close: half a unit on each side of their mean, 0.25
        ([9.8, 10.0], [9.0, 10.0]),  # not above the upper limit
        ([1.0, 2.5, 1.5], [0.75 - 1 / 12, 2.5 + 1 / 6, 1.75 - 1 / 12]),
        ([], []),
    ],
)
def test_spread_moves_as_little_as_needed(places: list[float], expected: list[float]) -> None:
    """Third case: 1 and 1.5 become 0.75 and 1.75, which is too close to 2.5: all three around their mean, 5/3."""
    assert spread(places, 1.0, -10.0, 10.0) == pytest.approx(expected)


def test_every_group_has_a_colour_of_its_own(make_run: MakeRun) -> None:
    """Hues for algorithms and shades for variants; of one algorithm with many variants, colours of the palette."""
    for algorithm in ("drag", "brand_new"):
        for attack in (None, "sign_flip"):
            run = make_run(f"{algorithm}-{attack}", attack=attack, spec={"algorithm.name": algorithm})
    groups = report.group_runs(report.find_runs(run.path.parent))
    styles = {group.label: line for group, line in zip(groups, style.line_styles(groups), strict=True)}
    assert len({line.colour for line in styles.values()}) == 4
    hue = styles["drag · no attack"].colour
    assert hue in style.FAMILIES and styles["drag · sign_flip"].colour == style.shade(hue, 1)
    assert styles["drag · sign_flip"].dash == styles["brand_new · sign_flip"].dash != styles["drag · no attack"].dash
    many = [replace(groups[0], settings=f"c={i}") for i in range(20)]
    assert len({line.colour for line in style.line_styles(many)}) == 20
    grid = [replace(groups[0], algorithm=name, settings=f"c={i}") for name in "abc" for i in range(4)]
    assert len({line.colour for line in style.line_styles(grid)}) == 12
    some = [*grid[:4], replace(groups[0], algorithm="z")]
    assert style.line_styles(some)[-1] == style.LineStyle(style.ORANGE, "-"), "without variants: the hue itself, solid"


def test_captions_explain_only_the_marks_that_occur(make_run: MakeRun) -> None:
    """Without attackers no caption mentions them; all clients of both rounds are sampled and finite."""
    group = write_telemetry(
        make_run,
        [{"round": t, "client": [0, 1], "attacker": [False, False], "divergence": [0.1, 0.4], "cosine": [0.5, 0.1]}
         for t in (1, 2)],
    )  # fmt: skip
    drawings = [clients.draw_clients([group]), clients.draw_cosines([group])]
    for drawing in drawings:
        assert drawing is not None
        texts = [text.get_text() for ax in drawing.figure.axes for text in (*ax.texts, *ax.get_yticklabels())]
        assert not re.search(
            "attack|honest|vermillion|suspicion|blank|grey", " ".join([drawing.caption, *texts]).lower()
        )
    assert drawings[0] is not None and len(drawings[0].figure.axes) == 2, "a heat map and its colour bar"
    run = make_run("attacked", attack="sign_flip", rounds=2)
    attacked = clients.draw_clients(report.group_runs([run]))
    assert attacked is not None
    assert "above the white line" in attacked.caption and "Blank: not sampled." in attacked.caption


def test_a_chart_has_the_numbers_and_limits_of_its_figure(make_run: MakeRun) -> None:
    make_run("a", algorithm="drag", seed=0, ran=4, curve=[0.2, 0.4])
    run = make_run("b", algorithm="drag", seed=1, ran=6, curve=[0.4, 0.6, 0.7])
    drawing = curves.draw_accuracy(report.group_runs(report.find_runs(run.path.parent)))
    assert drawing is not None and drawing.chart is not None
    assert drawing.chart["x"] == {"label": "round", "unit": "round"} and drawing.chart["target"] == 0.8
    (plot,) = drawing.chart["plots"]
    (shown,) = plot["lines"]
    assert (shown["mean"], shown["single"]) == ([[2, 0.3], [4, 0.5]], [[[4, 0.6], [6, 0.7]]])
    assert (shown["low"], shown["high"]) == ([[2, 0.2], [4, 0.4]], [[2, 0.4], [4, 0.6]])
    assert plot["limits"][2:] == pytest.approx(drawing.figure.axes[0].get_ylim(), rel=1e-5)


def test_a_chart_has_few_points_of_a_long_run() -> None:
    points = [(float(t), 0.5) for t in range(5001)]
    kept = chart._points(points)
    assert (len(kept), kept[0], kept[-1]) == (chart.MAX_POINTS, [0, 0.5], [5000, 0.5])
    assert chart._points(points[:1]) == [[0, 0.5]] and chart._points([]) == []


def test_colours_of_the_dark_page_stay_different() -> None:
    assert len(set(map(chart.lighten, style.PALETTE))) == len(set(style.PALETTE)) == len(style.PALETTE)


def test_arrows_of_the_illustrations_follow_the_rules() -> None:
    g, r = illustrations.HONEST_UPDATES[1], illustrations.ROOT
    v, lam = illustrations._drag(g, r, 0.5)
    np.testing.assert_allclose(v, functional.drag(g[None], r, 0.5), rtol=1e-6)
    np.testing.assert_allclose(lam, functional.divergence(g[None], r, 0.5)[0], rtol=1e-6)
    sent = illustrations.FACTORS[:, None] * illustrations.ATTACKERS_OWN_UPDATES
    step = functional.br_drag(np.concatenate([illustrations.HONEST_UPDATES, sent]), r, illustrations.C)
    assert f"Step of BR-DRAG (c = 0.5, root update of length 1.54): length {np.linalg.norm(step):.2f}" in (
        illustrations.draw_attack().caption
    )


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
