"""Styles of curves in the plots."""

from __future__ import annotations

from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.plots import caption, figure_styles
from tests.reproduction.made_summaries import make_summary, rounds


def test_a_derived_curve_is_dashed_in_the_colour_of_its_curve() -> None:
    figure = load_figure("fig3a")
    styles = figure_styles(figure, figure.curves)
    assert set(styles) == {curve.label for curve in figure.curves}
    derived = figure["adabest_own"]
    assert styles[derived.label].colour == styles["AdaBest"].colour
    assert (styles["AdaBest"].dash, styles[derived.label].dash) == ("-", (0, (4.5, 1.8)))
    assert len({style.colour for style in styles.values()}) == len(styles) - 1


def test_the_caption_names_derived_curves() -> None:
    figure = load_figure("fig3a")
    plain = make_summary("fig3a", {"drag": rounds(20)})
    assert "the same runs" not in caption(figure, plain)
    own = caption(figure, make_summary("fig3a", {"adabest_own": rounds(20)}))
    assert f"; {figure['adabest_own'].label}: the same runs, evaluated as in the algorithm's own paper." in own
