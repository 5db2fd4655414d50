"""docs/theory.md: its tables are those of the measurements, and so are the numbers in its text."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from dragfl.theory import PRINTED, gamma, least_progress, step_amplification

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "theory.md").read_text()


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "figures" / "make_theory.py"))


def test_the_tables_are_up_to_date(script: dict[str, Any]) -> None:
    assert script["with_tables"](PAGE) == PAGE


def test_the_numbers_in_the_text(script: dict[str, Any]) -> None:
    paper, covered = script["load"]("fig3a"), script["load"]("covered")
    L = [max(model["smoothness"]) for model in paper["measurement"]["models"]]
    mean = covered["measurement"]["mean_squared_gradient"]
    losses = [[model["loss"] for model in run["measurement"]["models"]] for run in (paper, covered)]
    assert paper["setting"] == {"c": 0.25, "lr": 0.1, "local_steps": 5, "batch_size": 20}
    texts = [
        f"c is {paper['setting']['c'] * 33:.3g} times too large",
        f"`x` is {paper['x'] * 8:.0f} times the largest",
        f"The bound is {covered['bound_measured']['total'] / mean:.0f} times the measured mean",
        f"Its floor alone, for c = 0.01, is {covered['floor']:.1f}, a hundred times the squared gradient norm",
        f"The loss fell from {losses[1][0]:.3f} to {losses[1][-1]:.3f} in these rounds",
        f"it falls to {losses[0][-1]:.2f} in {paper['measurement']['rounds']} rounds",
        f"It grew from {L[0]:.1f} to {max(L):.0f} in {paper['measurement']['rounds']} rounds",
        f"the printed `Γ` is −{-gamma(0.0, 1 / 8, PRINTED):.4f} even for `c = 0`",
        f"`Γ(0.1, x) ≤ −{-gamma(0.1, 0):.2f}` and `Γ(0.25, x) ≤ −{-gamma(0.25, 0):.3f}`",
        f"{step_amplification(40, 0.25):.2f} times for S = 40, c = 0.25",
        f"at c = 0.1 it still contributes −{-least_progress(0.1):.1f}",
    ]
    flat = " ".join(PAGE.split())
    assert [text for text in texts if text not in flat] == []
    assert 90 < covered["floor"] / covered["measurement"]["models"][0]["squared_gradient"] < 110
    assert max(L) == paper["constants"]["smoothness"]
