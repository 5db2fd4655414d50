"""`dragfl sweep`: a line per run, an interruption and its continuation, a report that ranks."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from pathlib import Path

import pytest

import dragfl
from dragfl import report
from dragfl.algorithms import PRESETS
from dragfl.cli import main
from dragfl.config.build_parts import needs_root
from tests.conftest import kept_bytes
from tests.runs.processes import count_lines

Capture = pytest.CaptureFixture[str]
ALGORITHMS = ["fedavg", "drag", "scaffold"]
WORDS = ["algorithm.name=fedavg,drag,scaffold", "seed=0,1"]
NAMES = [f"{name}-seed{seed}" for name in ALGORITHMS for seed in (0, 1)]

SPEC = """
name = "grid"
rounds = 6
target_accuracy = 0.3
[data]
partition = { kind = "sorted_shards" }
[clients]
total = 8
per_round = 4
local_steps = 2
batch_size = 10
[model]
name = "logistic"
[evaluation]
every = 2
"""


@pytest.fixture(autouse=True)
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "grid.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the figures: one test draws them."""
    monkeypatch.setattr("dragfl.report.write_report", lambda runs, out: Path(out) / "report.html")


class TestPlain:
    def test_a_line_per_run_then_the_ranking(self, capsys: Capture) -> None:
        pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'dragfl[report]'")
        assert main(["sweep", "grid.toml", *WORDS]) == 0
        printed = capsys.readouterr().out
        shown = [line for line in printed.splitlines() if line.startswith("run ") and "/6" in line]
        assert "\x1b" not in printed
        assert printed.splitlines()[:6] == shown
        for i, (line, name) in enumerate(zip(shown, NAMES, strict=True), 1):
            result = dragfl.load_run(f"sweeps/grid-algorithm-seed/{name}").result
            assert result is not None
            found = re.fullmatch(
                rf"run {i}/6  {name}  accuracy (\d\.\d{{3}}) after 6 rounds  \d+ s  .*(left|finished)", line
            )
            assert found, line
            assert found[1] == f"{result['accuracy']:.3f}"
        ranked = [row.label for row in report.summarize_runs("sweeps/grid-algorithm-seed")]
        places = [re.search(rf"^{label}\b", printed, re.MULTILINE) for label in ranked]
        starts = [place.start() for place in places if place]
        assert len(starts) == 3
        assert starts == sorted(starts), "the table is in the order of the ranking"
        assert printed.splitlines()[-1] == "report: sweeps/grid-algorithm-seed/report.html"
        page = Path("sweeps/grid-algorithm-seed/report.html").read_text()
        assert all(label in page for label in ranked)
        assert (Path("sweeps/grid-algorithm-seed/figures") / "bytes.png").stat().st_size > 4000

    @pytest.mark.usefixtures("no_figures")
    def test_finished_runs_are_not_repeated(self, capsys: Capture) -> None:
        main(["sweep", "grid.toml", "seed=0,1"])
        capsys.readouterr()
        assert main(["sweep", "grid.toml", "seed=0,1,2"]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"run 1/3  seed0  accuracy 0\.\d{3} after \d+ rounds  already finished", printed[0])
        assert re.fullmatch(r"run 2/3  seed1  accuracy 0\.\d{3} after \d+ rounds  already finished", printed[1])
        assert re.fullmatch(r"run 3/3  seed2  accuracy 0\.\d{3} after \d+ rounds  \d+ s  finished", printed[2])

    @pytest.mark.usefixtures("no_figures")
    def test_many_rounds_still_print_one_line(self, capsys: Capture) -> None:
        main(["sweep", "grid.toml", "seed=0,1", "rounds=40", "evaluation.every=1"])
        assert (
            sum("accuracy 0." in line and line.startswith("run ") for line in capsys.readouterr().out.splitlines()) == 2
        )

    @pytest.mark.usefixtures("no_figures")
    def test_a_diverged_run_is_reported_and_no_failure(self, capsys: Capture) -> None:
        assert main(["sweep", "grid.toml", "clients.lr=0.1,1e6", "algorithm.server.lr=1e6"]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"run 2/2  lr1000000\.0-lr1000000\.0  diverged at round 1  \d+ s  finished", printed[1])
        assert main(["sweep", "grid.toml", "clients.lr=0.1,1e6", "algorithm.server.lr=1e6"]) == 0
        assert "diverged at round 1  already finished" in capsys.readouterr().out.splitlines()[1]

    @pytest.mark.usefixtures("no_figures")
    def test_quiet(self, capsys: Capture) -> None:
        assert main(["sweep", "grid.toml", "seed=0", "--quiet", "--out", "here"]) == 0
        assert capsys.readouterr() == ("", "")
        assert dragfl.load_run("here/seed0").finished

    def test_without_a_plotting_library_the_table_is_printed(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(runs: object, out: object) -> Path:
            raise dragfl.errors.SpecError("figures need matplotlib")

        monkeypatch.setattr("dragfl.report.write_report", missing)
        assert main(["sweep", "grid.toml", "seed=0"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "no figures: figures need matplotlib"


class TestDryRun:
    def test_lists_the_folders(self, capsys: Capture) -> None:
        assert main(["sweep", "grid.toml", *WORDS, "--dry-run"]) == 0
        assert capsys.readouterr().out.splitlines() == [f"sweeps/grid-algorithm-seed/{name}" for name in NAMES]
        assert not Path("sweeps").exists()

    def test_all_algorithms_and_three_seeds(self, capsys: Capture) -> None:
        names = [name for name in PRESETS if not needs_root(PRESETS[name].build())]
        assert len(names) >= 16
        assert main(["sweep", "grid.toml", "--dry-run", f"algorithm.name={','.join(names)}", "seed=0,1,2"]) == 0
        assert len(set(capsys.readouterr().out.splitlines())) == 3 * len(names)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["seed"], "write key=value,value"),
            (["seed=0,0"], "two runs have the name 'seed0'"),
            (
                ["algorithm.name=fedavg,drg"],
                "run 'drg': override 'algorithm.name=drg': algorithm.name: unknown algorithm 'drg'",
            ),
        ],
    )
    def test_mistakes(self, capsys: Capture, words: list[str], message: str) -> None:
        assert main(["sweep", "grid.toml", *words]) == 2
        assert message in capsys.readouterr().err
        assert not Path("sweeps").exists()

    def test_without_a_grid(self, capsys: Capture) -> None:
        assert main(["sweep", "grid.toml"]) == 2
        assert "sweep: no key=a,b and no --tune; give at least one" in capsys.readouterr().err


@pytest.mark.usefixtures("no_figures")
def test_interrupted_and_continued(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted in the second run; the same command continues to the bytes of uninterrupted runs."""
    command = ["sweep", "grid.toml", "algorithm.name=scaffold,drag", "seed=0,1", "rounds=20", "--jobs", "1"]
    names = [f"{name}-seed{seed}-rounds20" for name in ("scaffold", "drag") for seed in (0, 1)]
    out = tmp_path / "sweeps" / "grid-algorithm-seed-rounds20"
    with monkeypatch.context() as patch:
        asked = contextlib.nullcontext(lambda: count_lines(out / names[1]) >= 10)
        patch.setattr("dragfl.cli.interrupt.catch_interrupts", lambda: asked)
        assert main(command) == 5
    printed, err = capsys.readouterr()
    assert err == "dragfl: sweep stopped with 1 of 4 runs finished; continue with the same command\n"
    assert printed.startswith(f"run 1/4  {names[0]}  accuracy 0.")
    assert printed.count("\n") == 1, "no table of an unfinished sweep"
    assert count_lines(out / names[1]) == 10
    assert not (out / names[2]).exists()
    assert main([*command, "--quiet"]) == 0
    for name in names:
        tables = tomllib.loads((out / name / "spec.toml").read_text())
        whole = dragfl.run(dragfl.load(tables), tmp_path / "whole" / name)
        assert kept_bytes(out / name) == kept_bytes(whole.path)
    assert [row.seeds for row in report.summarize_runs(out)] == [(0, 1), (0, 1)]


class TestJson:
    @pytest.mark.usefixtures("no_figures")
    def test_only_json_on_standard_output(self, capsys: Capture) -> None:
        words = ["sweep", "grid.toml", "algorithm.name=fedavg,drag", "seed=0,1", "--json"]
        assert main(words) == 0
        out, err = capsys.readouterr()
        values = json.loads(out)
        assert err == "" and out.count("\n") == 1
        assert values["runs"] == [
            f"sweeps/grid-algorithm-seed/{name}-seed{seed}" for name in ("fedavg", "drag") for seed in (0, 1)
        ]
        assert {row["algorithm"]: row["seeds"] for row in values["rows"]} == {"fedavg": [0, 1], "drag": [0, 1]}
        accuracies = [(dragfl.load_run(path).result or {})["accuracy"] for path in values["runs"][:2]]
        fedavg = next(row for row in values["rows"] if row["algorithm"] == "fedavg")
        assert fedavg["final_accuracy_mean"] == pytest.approx(sum(accuracies) / 2)
        assert values["tuning"] is None and values["damaged"] == [] and values["warnings"] == []

    @pytest.mark.usefixtures("no_figures")
    def test_tuned_values(self, capsys: Capture) -> None:
        words = ["sweep", "grid.toml", "seed=0", "--tune", "clients.lr=0.05,0.1", "--json", "rounds=2", "--dry-run"]
        assert main(words) == 0
        plan = json.loads(capsys.readouterr().out)
        assert (len(plan["runs"]), plan["final_runs"]) == (6, 1)
        assert main(words[:-1]) == 0
        values = json.loads(capsys.readouterr().out)
        (part,) = values["tuning"]["tuned"]
        assert part["selected"]["clients.lr"] in (0.05, 0.1) and len(part["candidates"]) == 2
        assert values["files"]["tuning"] == "sweeps/grid-seed0-rounds2-tune-lr/tuning.json"
        assert [path.split("/")[2] for path in values["runs"]] == ["final"]
        assert "edge of its grid" in values["warnings"][0]

    @pytest.mark.usefixtures("no_figures")
    @pytest.mark.parametrize("file", ["metrics.jsonl", "clients.jsonl", "result.json"])
    def test_a_damaged_run_is_listed_and_the_others_go_on(self, capsys: Capture, file: str) -> None:
        main(["sweep", "grid.toml", "seed=0,1", "--quiet"])
        (Path("sweeps/grid-seed/seed1") / file).write_text("torn\n")
        assert main(["sweep", "grid.toml", "seed=0,1,2", "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
        assert [row["seeds"] for row in values["rows"]] == [[0, 2]]
        assert [run["path"] for run in values["damaged"]] == ["sweeps/grid-seed/seed1"]
        assert main(["sweep", "grid.toml", "seed=0,1,2"]) == 0
        assert f"damaged, left out: sweeps/grid-seed/seed1/{file}: cannot be read" in capsys.readouterr().out


class TestReport:
    @pytest.mark.usefixtures("no_figures")
    def test_many_lines_have_different_styles(self) -> None:
        """Sixteen algorithms: colours repeat with another dash pattern, and all lines are thin."""
        style = pytest.importorskip(
            "dragfl.report.figures.style", reason="matplotlib is not installed: pip install 'dragfl[report]'"
        )
        names = [name for name in PRESETS if not needs_root(PRESETS[name].build())][:16]
        main(["sweep", "grid.toml", f"algorithm.name={','.join(names)}", "rounds=1", "--quiet", "--out", "many"])
        groups = report.group_runs(report.find_runs("many"))
        assert {group.algorithm for group in groups} == set(names)
        many = style.line_styles(groups)
        assert len({(line.colour, line.dash) for line in many}) == 16
        assert not any(line.band for line in many)
        few = style.line_styles(groups[:5])
        assert all(line.band for line in few) and few[0].width > many[0].width


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["algorithm.name=fedavg,drag", "seed=0,1"], "grid-algorithm-seed"),
        (["data.partition.kind=iid,shards", "rounds=3"], "grid-partition-rounds3"),
        (["clients.lr=0.1,0.2", "--tune", "algorithm.server_lr=1,2"], "grid-lr-tune-server_lr"),
    ],
)
def test_the_folder_is_named_by_what_varies(capsys: Capture, words: list[str], folder: str) -> None:
    assert main(["sweep", "grid.toml", *words, "--dry-run"]) == 0
    assert {line.split("/")[1] for line in capsys.readouterr().out.splitlines() if "/" in line} == {folder}


def test_the_folder_of_a_file_without_a_name(spec: Path, capsys: Capture) -> None:
    spec.with_name("mine.toml").write_text(SPEC.replace('name = "grid"', ""))
    assert main(["sweep", "mine.toml", "seed=0,1", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == ["sweeps/mine-seed/seed0", "sweeps/mine-seed/seed1"]


def test_the_report_of_a_folder_has_the_runs_of_all_its_sweeps(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed table is of this sweep alone; runs keep the name that the user gave."""
    written: list[report.Summary] = []
    monkeypatch.setattr("dragfl.report.write_report", lambda runs, out: written.append(runs) or Path(out) / "r")
    for values in ("0.05,0.1", "0.2"):
        assert main(["sweep", "grid.toml", f"clients.lr={values}", "rounds=1", "--out", "here"]) == 0
    printed = capsys.readouterr().out
    assert "the report has 2 more runs, of earlier sweeps into this folder" in printed
    assert [len(summary.rows) for summary in written] == [2, 3]
    assert [row.label for row in written[1].rows if "0.2" in row.label] == ["fedavg · lr=0.2"]
    assert dragfl.load_run("here/lr0.2-rounds1").name == "grid"
