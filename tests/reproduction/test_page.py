"""The generated pages: up to date, complete, with a command for every figure."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path

from dragfl.report.figures.files import FIGURES
from dragfl.reproduction.claims import load_claims
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.results import load_summaries
from dragfl.reproduction.summary import write_summary
from tests.reproduction.made_summaries import accuracies, make_summary, record_reaching, rounds

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "make_reproduction.py"))
figure_page, findings_page = SCRIPT["figure_page"], SCRIPT["findings_page"]
pages_of, write_pages = SCRIPT["pages_of"], SCRIPT["write_pages"]


def test_the_pages_of_the_project_are_up_to_date() -> None:
    folder = DOCS / "reproduction"
    pages = pages_of(folder)
    for path, text in pages.items():
        assert path.is_file() and path.read_text() == text, f"{path.name}: run python docs/make_reproduction.py"
    assert {path.name for path in folder.glob("*.md")} == {path.name for path in pages if path.parent == folder} | {
        "README.md", "summary.md", "causes.md",
    }  # fmt: skip
    for name in load_summaries(folder):
        assert (folder / FIGURES / f"{name}.png").is_file()
        assert (folder / f"{name}.json").stat().st_size < 150_000


def test_pages_from_made_summaries(tmp_path: Path) -> None:
    drift = {curve.id: rounds(30, 40, None) for curve in load_figure("fig3a").curves}
    attack = {curve.id: accuracies(0.7, 0.71, 0.72) for curve in load_figure("fig8").curves}
    folder = tmp_path / "reproduction"
    write_summary(make_summary("fig3a", drift, rounds=100, changes=["rounds=100"]), folder / "fig3a.json")
    write_summary(make_summary("fig8", attack, target=None), folder / "fig8.json")
    (folder / "causes.md").write_text("Because of the step length.")
    (folder / "fig9.md").write_text("The page of a figure that was removed.")
    written = write_pages(folder)
    assert [path.name for path in written] == ["reproduction.md", "fig3a.md", "fig8.md", "fig3a.png", "fig8.png"]
    assert sorted(path.name for path in folder.glob("*.md")) == ["causes.md", "fig3a.md", "fig8.md"]
    text, drift_page, attack_page = (path.read_text() for path in written[:3])
    assert drift_page.startswith("# fig3a: EMNIST, all 40 clients in every round\n")
    assert "dragfl reproduce fig3a --seeds 3 --rounds 100 data.dataset=emnist47" in drift_page
    assert "| DRAG | 40 (30 to not reached) |" in drift_page and "100 instead of 1000" in text
    assert "The experiment of fig7, with `" in attack_page  # not a link: fig7 has no page
    assert "Because of the step length." in text and "not the official balanced split" in text.replace("\n", " ")
    assert text.count("| **") == len(load_claims())
    assert "`dragfl reproduce fig4a`" in text  # listed as not run
    assert "| [fig3a](reproduction/fig3a.md) |" in text and "[fig4a]" not in text


def test_the_page_says_which_runs_were_shortened() -> None:
    """FedProx was stopped after 40 and 60 rounds, since no verdict depended on more."""
    short = [replace(record_reaching(None, seed).until(end), ended="decided") for seed, end in ((0, 40), (1, 60))]
    summary = make_summary("fig3a", {"drag": rounds(30, 40), "fedprox": short})
    text = figure_page("fig3a", {"fig3a": summary}, "../reproduction.md")
    assert "fig3a: FedProx 40 to 60 of 100 rounds: no verdict depends on more (--until-decided)." in text
    assert "dragfl reproduce fig3a --seeds 2 --until-decided data.dataset=emnist47" in text
    assert text.count("no verdict depends on more") == 1 and "| FedProx | > 50 |" in text


def test_causes_are_listed_only_with_measurements() -> None:
    assert "their causes" not in findings_page({}, "", "", "reproduction")
    curves = {"leak": accuracies(0.8), "br_drag": accuracies(0.7)}
    text = findings_page({"root": make_summary("root", curves, target=None)}, "", "", "reproduction")
    assert "root from the test set 80.0 %, BR-DRAG (c = 0.1) 70.0 %: +10.0 points" in text
    assert "their causes" in text
    assert "Step length and momentum" not in text


def test_the_page_opens_with_what_holds_and_lists_claims_competitors_and_what_is_missing() -> None:
    """DRAG is faster than each baseline on both seeds; the claims need three. Two runs of a minute, by their names."""
    curves = {curve.id: rounds(60, 70) for curve in load_figure("fig3a").curves} | {"drag": rounds(30, 40)}
    records = {name: [replace(r, commit="abc", machine="M", seconds=60.0) for r in rs] for name, rs in curves.items()}
    text = findings_page({"fig3a": make_summary("fig3a", records)}, "- DRAG is faster.", "", "reproduction")
    sections = re.findall(r"^##+ (.+)$", text, re.MULTILINE)
    assert sections[:7] == [
        "What holds", "Verdicts", "Claims of the paper", "Claims beyond the paper", "Competitor by competitor",
        "Open claims", "Runs",
    ]  # fmt: skip
    assert "## What holds\n\n- DRAG is faster.\n" in text
    lines = text.splitlines()
    paper, ours = (next(line for line in lines if line.startswith(f"| {title} |")) for title in sections[2:4])
    counted = [int(cell) for line in (paper, ours) for cell in line.split("|")[2:-1]]
    assert sum(counted) == len(load_claims())
    claim = next(line for line in lines if line.startswith("| C1 |"))
    assert claim.split(" | ")[1] == next(c.section for c in load_claims() if c.id == "C1")
    assert any("DRAG 35, SCAFFOLD 65: ratio 0.54 (0.50 to 0.57) | UNDECIDED |" in line for line in lines)
    missing = next(line for line in lines[lines.index("## Open claims") :] if line.startswith("| C1 |"))
    assert "1 more seed of DRAG, FedAvg, FedProx, SCAFFOLD, AdaBest in fig3a" in missing
    assert any(line.startswith("| [fig3a]") and "| 2 | abc | 1 | 2 min |" in line for line in lines)
    assert "- Machine 1: M." in lines
