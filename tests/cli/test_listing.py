"""`dragfl list`: derived from the parts, quick, and readable."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from dragfl import data
from dragfl.algorithms import PARTS, PRESETS
from dragfl.cli import costs, listing, main
from dragfl.types import Algorithm
from tests.conftest import python

ROOT = Path(__file__).resolve().parents[2]


def test_costs_are_those_of_the_parts() -> None:
    now = costs.written(costs.found())
    assert costs.FILE.read_text() == now, "run: python -m dragfl.cli.list_parts --costs, into src/dragfl/cli/costs.json"
    assert costs.known() == costs.found()


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "algorithm-table.md").read_text()
    assert page == listing.markdown(), "run: python -m dragfl.cli.list_parts --markdown > docs/algorithm-table.md"


def test_what_is_found() -> None:
    """The figures that everybody knows."""
    found = costs.known()
    assert (found["scaffold"].down, found["scaffold"].up) == (2, 2)
    assert (found["mime"].down, found["mime"].up) == (3, 2)
    assert (found["fedcm"].down, found["fedcm"].up) == (2, 1)
    assert found["adabest"].client == ["h", "seen"]
    assert found["fedadam"].server == ["m", "v"]
    assert [name for name, cost in found.items() if cost.root] == ["br_drag", "fltrust"]
    assert found["drag"].passes == 2


def test_a_rule_that_holds_all_updates_does_not_stream() -> None:
    @dataclasses.dataclass(frozen=True)
    class All(PARTS["aggregate"]["mean"]):  # type: ignore[misc]
        def needs(self, state: object) -> frozenset[str]:
            return frozenset({"all"})

    none, mean, sgd = PARTS["correction"]["none"](), PARTS["aggregate"]["mean"](), PARTS["server"]["sgd"]()
    assert not costs.probe(Algorithm(none, All(), sgd)).streams
    assert costs.probe(Algorithm(none, mean, sgd)).streams


def test_a_preset_without_a_known_cost_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "known", dict)
    assert {sheet.name: sheet.cost for sheet in listing.sheets()} == costs.known()


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_has_its_symbol(part: str) -> None:
    for name, kind in PARTS[part].items():
        assert listing.symbols(kind).keys() == {f.name for f in dataclasses.fields(kind)}, name


def test_settings_of_a_preset() -> None:
    sheet = next(sheet for sheet in listing.sheets() if sheet.name == "mimelite")
    shown = {s.name: (s.default, s.symbol) for s in sheet.settings}
    assert shown["momentum"] == (0.9, "beta in [0, 1)")
    assert shown["lite"][0] is True, "the preset's own default"
    assert shown["weighting"][1] == "w_m in c: `uniform` or `samples`; p_m: `uniform` or `samples`"
    assert shown["server_lr"][0] == 1.0


@pytest.mark.parametrize("kind", listing.KINDS)
def test_rows(kind: str) -> None:
    rows = listing.rows(kind)
    assert rows
    assert all(len(row) == 3 and row[0] and row[1] for row in rows), "everything is described"
    if kind == "algorithms":
        assert [row[0] for row in rows] == list(PRESETS)
        assert {row[0]: row[2] for row in rows}["fedprox"] == "mu (0.2), weighting (uniform), server_lr (1.0)"
    if kind == "datasets":
        assert {row[0]: row[1] for row in rows} == data.DATASETS


def test_a_line_for_each_algorithm_at_100_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["list", "algorithms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    first = next(i for i, line in enumerate(lines) if line.lstrip().startswith("fedavg "))
    shown = lines[first : first + len(PRESETS)]
    assert [line.split()[0] for line in shown] == list(PRESETS), "one line each"
    scaffold = next(line.split() for line in shown if "scaffold" in line)
    assert scaffold == ["scaffold", "Karimireddy", "2020", "scaffold", "mean", "sgd", "2/2", "c", "c", "yes"]
    assert any("alpha in (0, 1]; a number or a schedule" in line for line in lines)


def test_everything(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(kind in shown for kind in listing.KINDS)
    assert all(about.split(";")[0] in shown for about in data.DATASETS.values())


def test_without_torch(tmp_path: Path) -> None:
    """It answers at once, since torch takes a second to import."""
    code = "import sys; from dragfl.cli import main; main(['list']); print('torch' in sys.modules)"
    assert python(code, tmp_path).splitlines()[-1] == "False"


def test_the_generators(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dragfl.cli.list_parts"]
    page = subprocess.run([*command, "--markdown"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert page.stdout == listing.markdown()
    assert subprocess.run(command, capture_output=True, cwd=tmp_path).returncode == 2
