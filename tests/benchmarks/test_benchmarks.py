"""The benchmarks on tiny sizes: contenders, counts and written files. No test asserts a time."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dragfl
from benchmarks import __main__ as command
from benchmarks import aggregation, aggregators, floor, memory, root_rules, rounds, timing, trainers
from benchmarks.bare import bare_loop, preload
from benchmarks.figure import columns, draw
from benchmarks.markdown import render_markdown
from benchmarks.results import Comparison, Contender, Row, comparison_from_json, describe_environment, rows
from benchmarks.timing import interleave, threads
from benchmarks.workloads import WORKLOADS, Workload, noise

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def one_call_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here depends on a time, so a turn need not last."""
    monkeypatch.setattr(timing, "TURN_S", 0.0)


def tiny() -> dragfl.Dataset:
    return noise((1, 4, 4), 3, 60)


def tiny_pictures() -> dragfl.Dataset:
    return noise((1, 16, 16), 3, 60)


MLP = Workload("W1", "tiny", f"{__name__}:tiny", "mlp", 4, 3, 2, 5, 0.3, 1.6, settings={"hidden": 4})
CNN = dataclasses.replace(MLP, dataset=f"{__name__}:tiny_pictures", model="cnn", settings={"channels": 2})


def row(name: str, kind: str, median: float, base: float, **limits: float) -> Row:
    return Row(name, kind, "1 thread", median, median, median, {"bare loop": median / base}, limits)  # type: ignore[arg-type]


def test_a_round_is_measured_for_every_contender(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = SimpleNamespace(round_of=lambda workload, given: lambda: None)
    monkeypatch.setattr(rounds, "installed", lambda: [("a peer 1.0", peer)])
    comparison = rounds.measure(MLP, 1)
    ours = [one for one in comparison.rows if one.kind == "dragfl"]
    assert [one.name for one in ours] == ["dragfl, fedavg", "dragfl, drag"]
    assert {one.kind for one in comparison.rows} == {"floor", "bare", "dragfl", "peer"}
    assert all(one.limits == {"bare loop": 0.3, "floor": 1.6} for one in ours)
    bare = [one for one in comparison.rows if one.kind == "bare"]
    assert min(one.ratios["bare loop"] for one in bare) == 1.0  # the faster thread count is the base
    assert next(one for one in comparison.rows if one.kind == "floor").ratios["floor"] == 1.0


@pytest.mark.slow
def test_a_round_of_every_installed_peer() -> None:
    """Of these only Flower is installed with the development tools; its simulation starts a Ray of its own."""
    peers = [one.name for one in rounds.measure(MLP, 1).rows if one.kind == "peer"]
    assert any(name.startswith("Flower ") for name in peers)


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize(("workload", "products"), [(MLP, 2 + 3), (CNN, 5 + 2 * 3 + 2)])
def test_the_floor_has_the_kernels_of_sgd(workload: Workload, products: int, onednn: bool) -> None:
    """A linear layer has two products and an update, the first layer no d W; a convolution has two calls."""
    with torch.inference_mode():
        kernels = floor.local_step(workload, onednn)
        assert len(kernels) == products
        for kernel in kernels:
            kernel()


@pytest.mark.parametrize("kernels", [floor.linear_kernels, floor.onednn_kernels])
def test_the_floor_makes_the_update_of_sgd(kernels: Callable[..., list[floor.Kernel]]) -> None:
    layer, x, d = nn.Linear(3, 2, bias=False), torch.randn(4, 3), torch.randn(4, 2)
    weight = layer.weight.detach().clone()
    layer(x).backward(d)
    _, update = kernels(weight, x, d, first=True)
    expected = (weight - floor.LR * layer.weight.grad).clone()
    update()
    torch.testing.assert_close(weight, expected)


def test_the_floor_distributes_all_clients_and_its_processes_end() -> None:
    with floor.Floor(MLP, 2) as made:
        assert made.clients == [2, 1]
        made.round()
    assert [child.returncode for child in made.processes] == [0, 0]


def test_the_bare_loop_takes_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    real = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self: (steps.append(1), real(self)))
    bare_loop(MLP, preload(MLP))()
    assert len(steps) == MLP.per_round * MLP.steps


def test_clients_of_the_bare_loop_hold_the_samples_of_the_workload() -> None:
    assert sum(map(len, preload(MLP).rows)) == 60
    drawn = preload(dataclasses.replace(MLP, clients=100, share=7))
    assert [len(rows) for rows in drawn.rows] == [7] * 100


def test_turns_are_counted_and_the_thread_count_is_restored() -> None:
    calls: list[str] = []
    before = torch.get_num_threads()
    with threads(1):
        found = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert torch.get_num_threads() == before
    assert len(found["a"]) == 3
    assert sorted(calls) == 5 * ["a"] + 5 * ["b"]  # two more: one to warm up, one to size a turn


def test_rows_have_medians_quartiles_and_ratios() -> None:
    one, two = (Contender(name, "dragfl", "1 thread", lambda: None) for name in "ab")
    found = {one.label: [4.0, 1.0, 3.0, 2.0, 5.0], two.label: [2.0]}
    first, second = rows([one, two], found, {"b": two})
    assert (first.low, first.median, first.high, first.ratios) == (2.0, 3.0, 4.0, {"b": 1.5})
    assert (second.low, second.median, second.high) == (2.0, 2.0, 2.0)


def test_a_target_is_met_if_every_ratio_is_small_enough() -> None:
    assert row("a", "dragfl", 3.0, 10.0, **{"bare loop": 0.3}).met == {"bare loop": True}
    assert row("a", "dragfl", 3.1, 10.0, **{"bare loop": 0.3}).met == {"bare loop": False}
    assert row("a", "peer", 3.1, 10.0).met == {}


def test_aggregation_and_aggregators() -> None:
    small = aggregation.measure(1, shapes=((5, 100),))
    assert {len(comparison.rows) for comparison in small} == {4}
    (robust,) = aggregators.measure(1, shapes=((11, 50),))
    ours = [one.name for one in robust.rows if one.kind == "dragfl"]
    assert "median" in ours and "nnm" in ours


def test_every_trainer_that_supports_the_model_is_measured() -> None:
    dense, convolved = trainers.measure(1, shapes=(MLP, CNN))
    assert {"reference", "dense"} <= {one.name for one in dense.rows}
    assert {"reference", "channels_last"} <= {one.name for one in convolved.rows}
    for comparison in (dense, convolved):
        assert comparison.notes[0].removeprefix("auto: ") in {one.name for one in comparison.rows}


def test_anonymous_memory_counts_allocated_tensors() -> None:
    before = memory.anonymous()
    kept = torch.ones(20_000_000)  # more than an allocator keeps in reserve
    assert memory.anonymous() - before > 0.9 * kept.nbytes


@pytest.mark.slow
def test_memory_of_few_and_of_many() -> None:
    comparison = memory.measure(dataclasses.replace(MLP, share=5, clients=40, per_round=40), few=4)
    few, many = comparison.rows
    assert comparison.unit == "MB"
    assert few.median > 10 and many.limits == {"4 clients": memory.LIMIT}


def sample_comparisons() -> list[Comparison]:
    some = (row("floor", "floor", 0.1, 1.0), row("dragfl", "dragfl", 0.4, 1.0, **{"bare loop": 0.3}))
    comparison = Comparison("W1", "tiny", (*some, row("Slow", "peer", 9.0, 1.0)), ("bare loop",), 1)
    return [comparison, comparison, dataclasses.replace(comparison, workload="W4", unit="MB")]


def test_a_comparison_is_rebuilt_from_json() -> None:
    (comparison, *_) = sample_comparisons()
    assert comparison_from_json(json.loads(json.dumps(dataclasses.asdict(comparison)))) == comparison


def test_figure(tmp_path: Path) -> None:
    assert draw(sample_comparisons(), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert [len(column) for column in columns(sample_comparisons())] == [2, 1]
    assert not draw([dataclasses.replace(sample_comparisons()[0], workload="trainers")], tmp_path / "none.png")


def test_markdown_shows_missed_targets(tmp_path: Path) -> None:
    table = {
        **describe_environment(),
        "comparisons": [dataclasses.asdict(comparison) for comparison in sample_comparisons()],
    }
    (tmp_path / "bench.json").write_text(json.dumps(table))
    text = render_markdown(tmp_path / "bench.json")
    assert "| dragfl | 400 | — | 0.40 | ≤ 0.3 of bare loop: **missed** |" in text
    assert "torch" in text


def test_the_command_writes_json_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aggregation, "SHAPES", ((5, 100),))
    monkeypatch.setitem(command.WORKLOADS, "W1", MLP)
    monkeypatch.setattr(trainers, "SHAPES", (MLP,))
    monkeypatch.setattr(rounds, "measure", lambda workload, repeats, tick: sample_comparisons()[0])
    assert command.main(["W1", "trainers", "--repeats", "1", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [comparison["workload"] for comparison in found["comparisons"]] == ["W1", "trainers"]
    assert found["machine"]["cores"] >= 1 and found["machine"]["seed"] == 0
    assert (tmp_path / "bench.png").exists()
    printed = capsys.readouterr().out
    assert "missed" in printed and "reference" in printed


@pytest.mark.parametrize("words", [["W9"], ["W1", "--repeats", "0"]])
def test_wrong_arguments_are_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(words)
    assert re.search("W9|--repeats 0", capsys.readouterr().err)


def test_the_documentation_lists_every_workload() -> None:
    text = (ROOT / "docs" / "speed.md").read_text()
    for workload in WORKLOADS.values():
        assert f"| {workload.name} |" in text, workload.name


def test_rules_with_root_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """One comparison for each number of processes; Cone DRAG has a target, as a ratio to BR-DRAG."""
    monkeypatch.setattr(root_rules, "CASES", (dataclasses.replace(MLP, clients=4, per_round=4),))
    monkeypatch.setattr(root_rules, "ROOT", 20)
    monkeypatch.setattr(root_rules, "available_cores", lambda: 1)
    (found,) = root_rules.measure(repeats=1)
    assert [row.name for row in found.rows] == ["br_drag", "cone_drag", "boba"]
    assert found.rows[1].limits == {"br_drag": 1.5} and found.rows[0].ratios == {"br_drag": 1.0}
    assert found.title.endswith("1 process")


def test_growth_of_one_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The point of another value, measured earlier, stays."""
    for value in ("50", "500"):
        assert command.main(["growth", "--quick", "--only", "states", "--sizes", value, "--out", str(tmp_path)]) == 0
    assert [row["x"] for row in json.loads((tmp_path / "growth.json").read_text())["points"]] == [50, 500]
    assert (tmp_path / "growth.png").stat().st_size > 10_000
    assert "clients with a state on disk 500, client store: " in capsys.readouterr().out
