"""`dragfl list`: derived from the parts, quick, and readable."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from dragfl.algorithms import PARTS, PRESETS
from dragfl.cli import main, parts_table
from dragfl.cli.costs import Cost, cost_of
from dragfl.cli.list_parts import KINDS
from dragfl.data import DATASETS
from dragfl.types import Algorithm, FederationInfo, LocalResult, RoundContext, RoundInputs, Updates
from tests.conftest import python

ROOT = Path(__file__).resolve().parents[2]


def probe(algorithm: Algorithm) -> Cost:
    """The cost of an algorithm, measured in two rounds of 20 clients with a model of three numbers."""
    n, info = 20, FederationInfo(dim=3, clients=20, per_round=20, segments=(0, 3))
    correction, rule, server = algorithm.correction, algorithm.aggregate, algorithm.server
    w, delta = torch.zeros(3), torch.ones(n, 3) + torch.eye(n, 3)
    states = [correction.init(info), rule.init(info), server.init(info)]
    shapes = {"vector": w, "scalar": torch.zeros(())}
    mine: Mapping[str, torch.Tensor] = {name: shapes[kind] for name, kind in correction.fields.items()}
    needs: set[str] = set()
    down, up, passes = 0, 0, 1
    for t in range(2):
        context = RoundContext(t, lr=0.1, seed=0)
        asked = correction.needs(states[0])
        gradient = delta[0] if asked - {"root"} else None
        inputs = RoundInputs(gradient=gradient, root=delta[0] if "root" in asked else None)
        sent = correction.broadcast(states[0], context, inputs)
        result = LocalResult(delta[0], 2, 0.1, 5, lambda: delta[1])
        extra, mine = correction.client_finish(result, mine, sent, context)
        down = 1 + sum(value.shape == w.shape for value in sent.values())
        up = 1 + sum(value.shape == w.shape for value in extra.values()) + (gradient is not None)
        passes = 2 if t == 0 and "mean" in rule.needs(states[1]) else passes
        needs |= rule.needs(states[1]) | asked
        plan = rule.begin(
            states[1], context, RoundInputs(root=delta[0], directions=delta[:2], mean=delta.mean(0)), info
        )
        every = {name: value.expand(n, *value.shape) for name, value in extra.items()}
        partial = rule.fold(plan, Updates(delta, torch.ones(n).double(), torch.arange(n), every))
        step, states[1], _ = rule.finish(states[1], plan, partial)
        aggregated = {**partial.extra, "delta": delta.sum(0).double(), "count": torch.tensor(float(n))}
        aggregated |= {} if gradient is None else {"gradient": gradient}
        step, states[0] = correction.server_finish(states[0], aggregated, step, info, context)
        w, states[2] = server.update(states[2], step, w, context)
    kept = [field.name for state in states for field in dataclasses.fields(state)]
    return Cost(
        down, up, list(correction.fields), kept, "all" not in needs, passes, bool(needs & {"root", "directions"})
    )


@pytest.mark.parametrize("name", PRESETS)
def test_the_cost_read_without_torch_is_the_measured_one(name: str) -> None:
    algorithm = PRESETS[name].build()
    assert cost_of(algorithm) == probe(algorithm)


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "algorithm-table.md").read_text()
    assert page == parts_table.markdown(), "run: python -m dragfl.cli.parts_table > docs/algorithm-table.md"


def test_known_costs() -> None:
    cost = {name: cost_of(preset.build()) for name, preset in PRESETS.items()}
    assert (cost["scaffold"].down, cost["scaffold"].up) == (2, 2)
    assert (cost["mime"].down, cost["mime"].up) == (3, 2)
    assert (cost["fedcm"].down, cost["fedcm"].up) == (2, 1)
    assert cost["adabest"].client == ["h", "seen"]
    assert cost["fedadam"].server == ["m", "v"]
    assert [name for name in cost if cost[name].root] == ["br_drag", "cone_drag", "fltrust", "boba", "root_only"]
    assert cost["drag"].passes == 2


def test_a_part_that_computes_with_its_state_is_read_with_a_real_one() -> None:
    @dataclasses.dataclass(frozen=True)
    class Doubled(PARTS["correction"]["scaffold"]):  # type: ignore[misc]
        def broadcast(self, state: Any, context: RoundContext, inputs: RoundInputs) -> Any:
            return {"c": 2.0 * state.c, "scale": state.c.sum()}

    algorithm = dataclasses.replace(PRESETS["fedavg"].build(), correction=Doubled())
    assert (cost_of(algorithm).down, cost_of(algorithm).server) == (2, ["c"])


def test_a_rule_that_holds_all_updates_does_not_stream() -> None:
    assert not cost_of(PRESETS["krum"].build()).streams
    assert cost_of(PRESETS["fedavg"].build()).streams


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_has_its_symbol(part: str) -> None:
    for name, kind in PARTS[part].items():
        assert parts_table.symbols(kind).keys() == {f.name for f in dataclasses.fields(kind)}, name


def test_settings_of_a_preset() -> None:
    sheet = next(sheet for sheet in parts_table.describe_algorithms() if sheet.name == "mimelite")
    shown = {s.name: (s.default, s.symbol) for s in sheet.settings}
    assert shown["momentum"] == (0.9, "beta in [0, 1)")
    assert shown["lite"][0] is True, "the preset's own default"
    assert shown["weighting"][1] == "w_m in c: `uniform` or `samples`; p_m: `uniform` or `samples`"
    assert shown["server_lr"][0] == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_rows(kind: str) -> None:
    rows = parts_table.list_rows(kind)
    assert rows
    assert all(len(row) == 3 and row[0] and row[1] for row in rows), "everything is described"
    if kind == "algorithms":
        assert [row[0] for row in rows] == list(PRESETS)
        assert {row[0]: row[2] for row in rows}["fedprox"] == "mu (0.2), weighting (uniform), server_lr (1.0)"
    if kind == "datasets":
        assert {row[0]: row[1] for row in rows} == DATASETS


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
    assert scaffold == ["scaffold", "Karimireddy", "2020", "scaffold", "mean", "sgd", "2/2", "c"]
    assert any("alpha in (0, 1]; a number or a schedule" in line for line in lines)


@pytest.mark.parametrize("width", [32, 40, 60, 80, 100, 110, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_no_word_is_broken_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str, width: int
) -> None:
    """Every word of the listing is a word of the listing at 400 columns."""
    words = []
    for columns in (400, width):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["list", kind]) == 0
        shown = capsys.readouterr().out
        table = re.sub(r"Not shown.*?of\s+one\.|─+", "", shown, flags=re.DOTALL)
        words.append(set(table.split()))
    assert words[1] <= words[0]
    assert max(map(len, shown.splitlines())) <= width
    assert {row[0] for row in parts_table.list_rows(kind)} <= words[1], "every name is there"


def test_columns_without_room_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["list", "algorithms"])
    assert "Not shown for lack of width: stream, client keeps, server keeps, down/up." in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "120")
    main(["list", "algorithms"])
    assert "Not shown" not in capsys.readouterr().out


def test_one_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`drag` is an algorithm and an aggregate; `sign_flip` an attack."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "drag"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^algorithm +drag *$", shown, re.MULTILINE) and re.search(
        r"^aggregate +drag", shown, re.MULTILINE
    )
    assert re.search(r"^server_lr +1\.0 +eta_g", shown, re.MULTILINE)
    assert main(["list", "sign_flip", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert list(values) == ["attacks"] and values["attacks"][0]["settings"][0]["name"] == "scale"


def test_everything(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(kind in shown for kind in KINDS)
    assert all(about.split(";")[0] in shown for about in DATASETS.values())


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Every name with its description and settings; a setting without a default is required."""
    assert main(["list", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert tuple(values) == KINDS
    for kind in KINDS:
        assert [entry["name"] for entry in values[kind]] == [row[0] for row in parts_table.list_rows(kind)]
        assert all(entry["description"] for entry in values[kind])
    drag = next(entry for entry in values["algorithms"] if entry["name"] == "drag")
    c = next(setting for setting in drag["settings"] if setting["name"] == "c")
    assert (drag["aggregate"], c["default"], c["required"]) == ("drag", PARTS["aggregate"]["drag"]().c, False)
    q = next(entry for entry in values["partitions"] if entry["name"] == "label_mod")["settings"][0]
    assert (q["name"], q["required"], q["default"]) == ("q", True, None)


def test_json_of_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "datasets", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)["datasets"]] == list(DATASETS)


def test_without_torch(tmp_path: Path) -> None:
    """It answers at once, since torch takes a second to import."""
    code = "import sys; from dragfl.cli import main; main(['list']); print('torch' in sys.modules)"
    assert python(code, tmp_path).splitlines()[-1] == "False"


def test_the_module_prints_the_page(tmp_path: Path) -> None:
    page = subprocess.run(
        [sys.executable, "-m", "dragfl.cli.parts_table"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert page.stdout == parts_table.markdown()
