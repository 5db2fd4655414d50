"""The page is self-contained, escapes user strings, and its facts are those of the runs."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dragfl
from dragfl import report
from dragfl.errors import Interrupted, SpecError
from dragfl.report import figures

from .conftest import MakeRun, write_run

NASTY = "<script>alert('x')</script> & \"y\""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with an attack, several seeds, an unfinished run, a loss that is not finite, and names to escape."""
    runs = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        write_run(runs / f"drag{seed}", seed=seed, attack="sign_flip")
    write_run(runs / "fltrust", algorithm="fltrust", attack="sign_flip", ran=7, finished=False)
    write_run(runs / "fedavg", algorithm="fedavg", attack="sign_flip", spec={"name": NASTY})
    metrics = runs / "fedavg" / "metrics.jsonl"
    metrics.write_text(re.sub(r'"loss": [0-9.e+-]+', '"loss": "inf"', metrics.read_text()))
    return report.write_report([runs], tmp_path_factory.mktemp("out"), title=NASTY)


class Reader(HTMLParser):
    """Collects tags, what they load, alt texts, facts, and the cells of the rows of each run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.alts: list[str] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.feed(text)
        self.facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
        (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
        self.data = json.loads(found)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.loaded += [given[key] or "" for key in ("src", "href", "srcset", "data") if key in given]
        if tag == "img":
            self.alts.append(given.get("alt") or "")
        if tag == "tr":
            self.cells: list[str] | None = None
            if run := given.get("data-run"):
                self.rows.setdefault(run, []).append(cells := [])
                self.cells = cells
        if tag == "td" and self.cells is not None:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("td", "span") and getattr(self, "cells", None):
            self.cells[-1] += data.strip("\n")


def test_the_page_loads_nothing_from_outside(page: Path) -> None:
    text = page.read_text()
    seen = Reader(text)
    assert "link" not in seen.tags and "iframe" not in seen.tags
    assert "default-src 'none'; img-src data:" in text, "the browser refuses to load anything else"
    assert len(seen.loaded) == 8 and all(one.startswith("data:image/png;base64,") for one in seen.loaded)
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert all(seen.alts)


def test_user_strings_are_escaped(page: Path) -> None:
    text = page.read_text()
    assert NASTY not in text and "&lt;script&gt;" in text
    assert "a &lt;small&gt; one" in text  # from run.json


def test_every_figure_is_written_as_png(page: Path) -> None:
    names = {"accuracy", "loss", "bytes", "clients", "cosine", "drift", "attack", "dragging"}
    files = {path.name: path.stat().st_size for path in (page.parent / "figures").iterdir()}
    assert set(files) == {f"{name}.png" for name in names}
    assert all(size > 4000 for size in files.values())


def test_figures_as_pdf_where_asked_for(make_run: MakeRun, tmp_path: Path) -> None:
    """A report without them removes those of an earlier one: they would show other runs."""
    run, figures = make_run("a", rounds=4), tmp_path / "figures"
    report.write_report(run, tmp_path, pdf=True)
    drawn = {path.stem for path in figures.glob("*.png")}
    assert drawn and {path.stem for path in figures.glob("*.pdf")} == drawn
    report.write_report(run, tmp_path)
    assert {path.name for path in figures.iterdir()} == {f"{name}.png" for name in drawn}


def test_facts_of_the_page(page: Path) -> None:
    text = page.read_text()
    facts = Reader(text).facts
    assert facts["runs"] == "4" and facts["unfinished"] == "1"
    assert facts["dataset"] == "digits" and facts["partition"] == "sorted_shards"
    assert (facts["attack"], facts["attackers"]) == ("sign_flip", "3")
    assert "unfinished, 7 rounds so far" in text
    assert "not finite" in text  # the loss of fedavg
    assert "mean ± standard deviation" in text
    assert re.search(r"dragfl run \S*fltrust/spec\.toml", text)
    assert "2.13.0" in text


@pytest.mark.usefixtures("empty_figures")
def test_illustrations_only_of_what_was_run(make_run: MakeRun, tmp_path: Path) -> None:
    """No attack illustration without an attack, no DRAG illustration without a divergence."""
    names = {}
    for algorithm, attack in (("fedavg", None), ("drag", None), ("fedavg", "sign_flip")):
        run = make_run(f"{algorithm}-{attack}", algorithm=algorithm, attack=attack, rounds=2)
        drawn = figures.draw_figures(report.group_runs([run]), tmp_path)
        names[algorithm, attack] = drawn.keys() & {"attack", "dragging"}
    assert names == {("fedavg", None): set(), ("drag", None): {"dragging"}, ("fedavg", "sign_flip"): {"attack"}}


@pytest.mark.usefixtures("empty_figures")
def test_figures_of_an_earlier_report_are_removed(make_run: MakeRun, tmp_path: Path) -> None:
    stale = tmp_path / "figures" / "cosine.png"
    stale.parent.mkdir()
    stale.write_bytes(b"old")
    keep = tmp_path / "figures" / "mine.png"
    keep.write_bytes(b"the user's")
    page = dragfl.report.write_report(make_run("one", algorithm="fedavg", rounds=4), tmp_path)
    assert page == tmp_path / "report.html"
    assert not stale.exists() and keep.exists()
    assert not list(tmp_path.rglob(".*"))


def test_a_full_disk_keeps_the_old_page(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("one", rounds=4)
    old = tmp_path / "report.html"
    old.write_text("old")
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    monkeypatch.setattr(Path, "write_bytes", _full_disk)
    with pytest.raises(Interrupted, match="the disk is full"):
        report.write_report(run, tmp_path)
    assert old.read_text() == "old"
    assert [path.name for path in tmp_path.glob("*report*")] == ["report.html"]


def _full_disk(path: Path, data: bytes) -> int:
    with path.open("wb") as file:
        file.write(data[:10])
    raise OSError(28, "No space left on device")


def test_without_matplotlib_the_error_names_the_extra(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragfl.report.figures.files.find_spec", lambda name: None)
    run = make_run("one")
    with pytest.raises(SpecError, match=r"pip install 'dragfl\[report\]'"):
        report.write_report(run, tmp_path)
    assert report.summarize_runs(run)


def test_the_best_accuracy_is_that_of_the_best_run(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    worse = make_run("worse", algorithm="fedavg", rounds=4, curve=[0.2, 0.3])
    better = make_run("better", algorithm="drag", rounds=4, curve=[0.5, 0.9])
    page = dragfl.report.write_report([worse, better], tmp_path / "page").read_text()
    assert Reader(page).facts["best accuracy"] == "90.0 % (drag)"
    assert [row.label for row in dragfl.report.summarize_runs([worse, better])] == ["drag", "fedavg"]
    for i, run in enumerate((worse, better)):
        info = json.loads((run.path / "run.json").read_text())
        (run.path / "run.json").write_text(json.dumps(info | {"fingerprints": {"data": f"{i}" * 8}}))
    page = dragfl.report.write_report(worse.path.parent, tmp_path / "page").read_text()
    assert "best accuracy" not in Reader(page).facts, "of different data there is no best"


def test_a_missing_folder_and_a_file_as_output_are_errors(tmp_path: Path, make_run: MakeRun) -> None:
    run = make_run("one", algorithm="fedavg", rounds=2)
    with pytest.raises(SpecError, match="nowhere: no such folder"):
        dragfl.report.summarize_runs([run, tmp_path / "nowhere"])
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="is a file"):
        dragfl.report.write_report(run, tmp_path / "file")


@pytest.mark.usefixtures("empty_figures")
def test_a_diverged_run_has_a_cross_and_no_accuracy(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("fine", algorithm="fedavg", curve=[0.3] * 10)
    run = make_run("boom", ran=6, curve=[0.5, 0.9, 0.95], diverged=True)
    text = dragfl.report.write_report(run.path.parent, tmp_path).read_text()
    assert text.count("diverged at round 7") == 3  # in two tables and in the list of runs
    assert "Cross: the last value before a run diverged" in text
    assert Reader(text).facts["best accuracy"] == "30.0 % (fedavg)"
    assert "A diverged run counts as chance level (1 / classes)" in text


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})


@pytest.mark.usefixtures("no_figures")
def test_diverged_and_unfinished_runs_are_named_before_the_first_table(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("a", algorithm="drag", seed=0, rounds=8)
    make_run("b", algorithm="drag", seed=1, rounds=8, ran=4, curve=[0.2, 0.3], diverged=True)
    make_run("c", algorithm="fedavg", seed=0, rounds=8, ran=2, curve=[0.2], diverged=True)
    run = make_run("d", algorithm="fltrust", rounds=8, ran=6, finished=False)
    page = report.write_report(run.path.parent, tmp_path / "page").read_text()
    head = page[: page.index("<table")]
    alerts = [
        re.sub(r"<.*?>", "", text) for text in re.findall(r'<p class="alert .*?">(.*?)\s*<button', head, re.DOTALL)
    ]
    assert alerts == ["Diverged: drag (round 5, seed 1); fedavg (round 3)", "Unfinished: fltrust (6 of 8 rounds)"]
    (line,) = [rows[0] for rows in Reader(page).rows.values() if rows[0][0].startswith("fedavg")]
    assert line[0] == "fedavg diverged at round 3" and line[-1].strip() == "2 of 8"
    assert not any("diverged" in cell for cell in line[1:]), "said once in a row"


@pytest.mark.usefixtures("no_figures")
def test_a_page_without_problems_has_no_alert(make_run: MakeRun, tmp_path: Path) -> None:
    assert 'class="alert ' not in report.write_report(make_run("a", rounds=4), tmp_path).read_text()


@pytest.mark.usefixtures("empty_figures")
def test_rows_and_curves_of_a_run_have_its_number(make_run: MakeRun, tmp_path: Path) -> None:
    """Five groups with two attacks, so each attack has a plot of its own and labels there do not have the attack."""
    for algorithm in ("drag", "fedavg"):
        for attack in ("sign_flip", "alie"):
            make_run(f"{algorithm}-{attack}", algorithm=algorithm, attack=attack, rounds=4)
    run = make_run("one-more", algorithm="fltrust", attack="alie", rounds=4, spec={"clients.lr": 0.5})
    seen = Reader(report.write_report(run.path.parent, tmp_path / "page").read_text())
    assert seen.rows.keys() == {str(i) for i in range(5)}
    chart = seen.data["figures"]["accuracy"]
    shown = {(plot["title"], line["label"]): line["run"] for plot in chart["plots"] for line in plot["lines"]}
    assert sorted(shown.values()) == [0, 1, 2, 3, 4]
    for (attack, label), number in shown.items():
        text = seen.data["runs"][number]
        assert text.startswith(f"{label} · {attack}") and "digits" in text and f"attack.name={attack}" in text
        assert ("clients.lr=0.5" in text) == (label == "fltrust")
        assert all(cells[0] in (label, f"{label} · {attack}") for cells in seen.rows[str(number)])


@pytest.mark.usefixtures("empty_figures")
def test_no_explanation_of_what_no_run_has(make_run: MakeRun, tmp_path: Path) -> None:
    page = report.write_report(make_run("a", algorithm="drag", rounds=4), tmp_path).read_text()
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(".{20}(?:attack|malicious|honest).{20}", text, re.IGNORECASE) == []
    assert "Effect of DRAG on an update" in text


@pytest.mark.usefixtures("empty_figures")
def test_numbers_in_the_page_are_escaped_json(make_run: MakeRun, tmp_path: Path) -> None:
    """A name that would end the script element is data, and comes back from the JSON as it was."""
    name = "</script><b>x"
    make_run("a", algorithm="fedavg", rounds=4, spec={"name": name})
    run = make_run("b", algorithm="fedavg", rounds=4, spec={"name": "y"})
    page = report.write_report(run.path.parent, tmp_path / "page").read_text()
    assert name not in page
    assert any(name in text for text in Reader(page).data["runs"])
