"""The page is made of summaries and nothing else: up to date, whole, and every panel with its command."""

from __future__ import annotations

import re
from pathlib import Path

from dragfl.reproduction import claims, page, results
from dragfl.reproduction import figure as panel
from dragfl.reproduction import summary as summaries
from tests.reproduction.hand import accuracies, rounds, summary

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_the_project_is_up_to_date() -> None:
    folder = DOCS / "reproduction"
    causes = folder / "causes.md"
    text = page.render(results.load(folder), causes.read_text() if causes.is_file() else "", folder.name)
    assert (DOCS / "reproduction.md").read_text() == text, "run: python docs/make_reproduction.py"
    for name in results.load(folder):
        assert (folder / results.FIGURES / f"{name}.png").is_file()
        assert (folder / f"{name}.json").stat().st_size < 150_000


def test_a_page_by_hand(tmp_path: Path) -> None:
    drift = {curve.id: rounds(30, 40, None) for curve in panel.load("fig3a").curve}
    attack = {curve.id: accuracies(0.7, 0.71, 0.72) for curve in panel.load("fig8").curve}
    folder = tmp_path / "reproduction"
    summaries.write(summary("fig3a", drift, rounds=100, changes=["rounds=100"]), folder / "fig3a.json")
    summaries.write(summary("fig8", attack, target=None), folder / "fig8.json")
    (folder / "causes.md").write_text("Because of the step length.")
    written = page.write(folder, tmp_path / "reproduction.md")
    assert [path.name for path in written] == ["reproduction.md", "fig3a.png", "fig8.png"]
    text = written[0].read_text()
    assert "dragfl paper fig3a --seeds 3 --rounds 100 data.dataset=emnist47" in text
    assert "| DRAG | 40 (30 to not reached) |" in text and "100, the panel has 1000" in text
    assert "Because of the step length." in text and "not the official balanced split" in text.replace("\n", " ")
    assert text.count("| **") == len(claims.load())
    assert "`dragfl paper fig4a`" in text  # not run yet, and said so
    for target in re.findall(r"\]\(#([^)]+)\)", text):
        assert target in {page.anchor(h) for h in re.findall(r"^## (.+)$", text, re.MULTILINE)}


def test_causes_are_told_with_numbers_or_not_at_all() -> None:
    assert "and why" not in page.render({}, "", "reproduction")
    curves = {"leak": accuracies(0.8), "br_drag": accuracies(0.7)}
    text = page.render({"root": summary("root", curves, target=None)}, "", "reproduction")
    assert "root from the test set 80.0 %, BR-DRAG, c = 0.1 70.0 %: difference +10.0 points" in text
    assert "Step length and momentum" not in text
