"""A run is given back only if data, initial weights, model and code are those of the run."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dragfl
from dragfl.attacks import SignFlip
from dragfl.cli import main
from dragfl.data.dataset import from_tensors
from dragfl.errors import DamagedRun, DragflError, DragflWarning, Interrupted, SpecError
from dragfl.runs import fingerprints
from dragfl.runs.digests import with_digest
from dragfl.runs.fingerprints import Fingerprints, digest_data
from dragfl.runs.sweep import Callbacks
from tests.conftest import Load, kept_bytes

SPEC = """
rounds = 2
[clients]
total = 4
local_steps = 1
[model]
name = "logistic"
"""


def network(activation: type[nn.Module] = nn.ReLU, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 4), activation(), nn.Linear(4, 3))


@dataclass(frozen=True)
class Flip(SignFlip):
    """A class of this file, so that its code counts."""


CHANGES: dict[str, tuple[Callable[[dragfl.Dataset], dict[str, Any]], str]] = {
    "one pixel": (lambda toy: {"data": {"dataset": replace(toy, x=toy.x + (torch.arange(6) == 5) * 1e-4)}}, "data"),
    "one label": (lambda toy: {"data": {"dataset": replace(toy, y=toy.y.roll(1))}}, "data"),
    "test data": (lambda toy: {"data": {"dataset": replace(toy, test_y=toy.test_y.roll(1))}}, "data"),
    "more data": (lambda toy: {"data": {"dataset": replace(toy, x=toy.x[:-1], y=toy.y[:-1])}}, "data"),
    "groups": (lambda toy: {"data": {"dataset": replace(toy, groups=toy.y)}}, "data"),
    "weights": (lambda toy: {"model": {"name": network(seed=1)}}, "initial weights"),
    "activation": (lambda toy: {"model": {"name": network(nn.Tanh)}}, "model"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "unfinished"])
def test_what_changed_is_named(
    experiment: Load, toy: dragfl.Dataset, tmp_path: Path, change: str, finished: bool
) -> None:
    """Also in a run that is not finished, by `run` and by `resume`; and nothing is written."""
    start = experiment(model={"name": network()})
    if finished:
        dragfl.run(start, tmp_path / "r")
    else:
        with pytest.raises(Interrupted):
            dragfl.run(start, tmp_path / "r", should_stop=lambda: True)
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}
    make, what = CHANGES[change]
    changed = experiment(**({"model": {"name": network()}} | make(toy)))
    for call in (dragfl.run, lambda exp, out: dragfl.resume(out, exp)):
        with pytest.raises(SpecError) as error:
            call(changed, tmp_path / "r")
        assert f"but not the {what} (digest " in str(error.value)
        assert "start over with --fresh (in Python: fresh=True)" in str(error.value)
    assert {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()} == before


def test_the_same_objects_made_again_are_the_same_run(experiment: Load, toy: dragfl.Dataset, tmp_path: Path) -> None:
    first = dragfl.run(experiment(model={"name": network()}), tmp_path / "r")
    copied = replace(toy, x=toy.x.clone(), name="toy", class_names=("a", "b", "c"))
    again = dragfl.run(experiment(model={"name": network()}, data={"dataset": copied}), tmp_path / "r")
    assert again.result == first.result


def test_a_run_without_a_checkpoint_begins_again(experiment: Load, tmp_path: Path) -> None:
    """An own part raised in the first round; the corrected one needs no --fresh, since there is nothing to keep."""

    def broken(updates: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError

    def repaired(updates: torch.Tensor) -> torch.Tensor:
        return updates.mean(0)

    repaired.__name__ = repaired.__qualname__ = "broken"
    for number, call in enumerate((dragfl.run, lambda exp, out: dragfl.resume(out, exp))):
        with pytest.raises(DragflError, match="ZeroDivisionError"):
            dragfl.run(experiment(algorithm={"aggregate": broken}), tmp_path / f"r{number}")
        run = call(experiment(algorithm={"aggregate": repaired}), tmp_path / f"r{number}")
        assert dragfl.run(experiment(algorithm={"aggregate": repaired}), run.path).result == run.result


def test_fresh_replaces_the_run(experiment: Load, tmp_path: Path) -> None:
    dragfl.run(experiment(model={"name": network()}), tmp_path / "r")
    (tmp_path / "r" / "notes.txt").write_text("mine")
    changed = experiment(model={"name": network(seed=1)})
    fresh = dragfl.run(changed, tmp_path / "r", fresh=True)
    assert kept_bytes(fresh.path) == kept_bytes(dragfl.run(changed, tmp_path / "new").path)
    assert (tmp_path / "r" / "notes.txt").read_text() == "mine"
    assert dragfl.run(changed, tmp_path / "r").result == fresh.result


class TestFresh:
    def test_a_run_that_was_replaced_is_not_read(self, experiment: Load, tmp_path: Path) -> None:
        """Its numbers would be those of the new run, or of both."""
        first = dragfl.run(experiment(), tmp_path / "r")
        kept = first.result
        second = dragfl.run(experiment(clients={"lr": 0.7}), tmp_path / "r", fresh=True)
        assert first.result == kept != second.result
        for read in (lambda: first.metrics, lambda: first.clients, first.model):
            with pytest.raises(DamagedRun, match="was started over since this Run was loaded"):
                read()
        assert dragfl.load_run(tmp_path / "r").metrics == second.metrics

    def test_other_settings_and_another_algorithm(self, experiment: Load, tmp_path: Path) -> None:
        """Client states and checkpoints of the old run are gone."""
        dragfl.run(experiment(algorithm={"name": "scaffold"}, state={"memory_mb": 0}), tmp_path / "r")
        assert (tmp_path / "r" / "client_states.bin").exists()
        dragfl.run(experiment(rounds=2), tmp_path / "r", fresh=True)
        dragfl.run(experiment(rounds=2), tmp_path / "new")
        names = [sorted(path.name for path in (tmp_path / part).iterdir()) for part in ("r", "new")]
        assert names[0] == names[1]

    def test_into_a_new_folder(self, experiment: Load, tmp_path: Path) -> None:
        assert dragfl.run(experiment(), tmp_path / "r", fresh=True).finished

    def test_a_folder_that_is_no_run_directory_is_refused(self, experiment: Load, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors").write_text("precious")
        with pytest.raises(SpecError, match="exists and is not a run directory"):
            dragfl.run(experiment(), tmp_path, fresh=True)
        assert (tmp_path / "model.safetensors").read_text() == "precious"

    def test_nothing_is_deleted_for_an_experiment_that_cannot_run(self, experiment: Load, tmp_path: Path) -> None:
        run = dragfl.run(experiment(), tmp_path / "r")
        before = {path.name: path.read_bytes() for path in run.path.iterdir()}
        with pytest.raises(SpecError):
            dragfl.run(experiment(model={"name": "cnn"}), run.path, fresh=True)
        assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before

    def test_a_damaged_spec_is_replaced(self, experiment: Load, tmp_path: Path) -> None:
        run = dragfl.run(experiment(), tmp_path / "r")
        (run.path / "spec.toml").write_text("not = = toml")
        result = run.result
        assert dragfl.run(experiment(), run.path, fresh=True).result == result

    @pytest.mark.parametrize("operation", range(12))
    def test_killed_in_the_middle(
        self, experiment: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: int
    ) -> None:
        """Before the i-th file is deleted or replaced: the old run can be resumed, the new one started."""
        old, new = experiment(), experiment(clients={"lr": 0.3})
        whole = kept_bytes(dragfl.run(old, tmp_path / "r").path)
        left = iter(range(operation))

        def killed(function: Callable[..., Any]) -> Callable[..., Any]:
            def stop_here(*arguments: Any, **options: Any) -> Any:
                if next(left, None) is None:
                    raise KeyboardInterrupt
                return function(*arguments, **options)

            return stop_here

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", killed(Path.unlink))
            patch.setattr(Path, "replace", killed(Path.replace))
            with pytest.raises(KeyboardInterrupt):
                dragfl.run(new, tmp_path / "r", fresh=True)
        if dragfl.load_run(tmp_path / "r").spec["clients"]["lr"] == 0.2:
            assert kept_bytes(dragfl.resume(tmp_path / "r", old).path) == whole
        else:
            dragfl.resume(tmp_path / "r", new)
        assert dragfl.run(new, tmp_path / "r", fresh=True).spec["clients"]["lr"] == 0.3


MODULE = """
import torch
from torch import nn
from dataclasses import dataclass
from dragfl.attacks import SignFlip
from dragfl.aggregates.mean import Mean
from dragfl.data.partitions import PARTITIONS

@dataclass(frozen=True)
class Rule(Mean):
    def finish(self, state, plan, partial):
        step, state, metrics = super().finish(state, plan, partial)
        return step * 1.0, state, metrics

@dataclass(frozen=True)
class Attack(SignFlip):
    pass

@dataclass(frozen=True)
class Split:
    def __call__(self, labels, clients, rng):
        return PARTITIONS["iid"]()(labels, clients, rng)

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

def digits():
    from dragfl import data
    return data.load("digits")
"""
OWN = [
    "algorithm.aggregate=parts_x:Rule",
    "attack={name='parts_x:Attack',attackers=1}",
    "data.partition.kind=parts_x:Split",
    "model.name=parts_x:net",
    "data.dataset=parts_x:digits",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "parts_x.py").write_text(MODULE)
    (tmp_path / "x.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("dragfl.cli.output.print_report", lambda write, quiet: 0)
    yield tmp_path
    sys.modules.pop("parts_x", None)


def edit(folder: Path, text: str) -> None:
    (folder / "parts_x.py").write_text(text)
    sys.modules.pop("parts_x", None)
    importlib.invalidate_caches()


class TestCommandLine:
    @pytest.mark.parametrize("own", OWN, ids=[word.partition("=")[0] for word in OWN])
    def test_an_edited_file(self, folder: Path, own: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["run", "x.toml", own, "--quiet"]
        assert main(command) == 0
        assert main(command) == 0
        edit(folder, MODULE + "\n# edited\n")
        assert main(command) == 2
        assert (
            "runs/run-1: its settings are the same, but not the code of parts_x.py; choose" in capsys.readouterr().err
        )
        assert main([*command, "--fresh"]) == 0
        assert main(command) == 0
        assert capsys.readouterr() == ("", "")

    def test_changed_data(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        draws = np.random.default_rng(0)
        x, y = draws.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 3
        np.savez(folder / "mine.npz", x=x, y=y)
        assert main(["run", "x.toml", "data.dataset=npz:mine.npz", "--quiet"]) == 0
        np.savez(folder / "mine.npz", x=x, y=np.roll(y, 1))
        assert main(["run", "x.toml", "data.dataset=npz:mine.npz"]) == 2
        assert "but not the data (digest " in capsys.readouterr().err

    def test_settings(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "x.toml", "name=mine", "--quiet"]) == 0
        words = ["name=mine", "clients.lr=0.5", "target_accuracy=0.9", "rounds=3", "model.name=mlp"]
        assert main(["run", "x.toml", *words]) == 2
        error = capsys.readouterr().err
        assert "another experiment: rounds is 3, there 2; target_accuracy is 0.9, there not set; " in error
        assert "clients.lr is 0.5, there 0.1 and 2 more; choose another folder (--out)" in error

    def test_another_version_is_a_warning(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "x.toml", "--quiet"]) == 0
        path = folder / "runs" / "run-1" / "run.json"
        info = json.loads(path.read_text())
        path.write_text(json.dumps(with_digest(info | {"torch": "1.0", "dragfl": "0.0.1"})))
        assert main(["run", "x.toml", "--quiet"]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert [line.partition(" made with ")[2].split(",")[0] for line in lines] == ["dragfl 0.0.1", "torch 1.0"]
        assert all(line.startswith("warning: runs/run-1: ") for line in lines)
        path.write_text(json.dumps(with_digest(info | {"fingerprints": info["fingerprints"] | {"dragfl": "other"}})))
        assert main(["run", "x.toml", "--quiet"]) == 0
        assert "warning: runs/run-1: the source of dragfl was edited since" in capsys.readouterr().err
        path.write_text(json.dumps({k: v for k, v in info.items() if k not in ("fingerprints", "digest")}))
        assert main(["run", "x.toml", "--quiet"]) == 0
        assert "warning: runs/run-1: it was made by a version without fingerprints" in capsys.readouterr().err

    def test_a_sweep_starts_over_what_changed(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["sweep", "x.toml", "algorithm.aggregate=mean,parts_x:Rule", "--out", "s", "--quiet", "--jobs", "1"]
        assert main(command) == 0
        kept, own = sorted((folder / "s").glob("*/metrics.jsonl"))
        written = kept.stat().st_mtime_ns, own.stat().st_mtime_ns
        edit(folder, MODULE.replace("step * 1.0", "step * 0.5"))
        assert main(command) == 2
        assert "but not the code of parts_x.py" in capsys.readouterr().err
        assert main([*command, "--fresh"]) == 0
        assert kept.stat().st_mtime_ns == written[0]
        assert own.stat().st_mtime_ns > written[1]

    def test_a_sweep_that_was_interrupted_after_fresh(self, experiment: Load, tmp_path: Path) -> None:
        """No run of the old data is left, and the same command without --fresh continues."""
        tables = experiment().tables() | {"data": {"dataset": toy_copy(0)}, "rounds": 3, "checkpoint": {"every": 1}}
        grid = {"seed": [0, 1]}
        dragfl.sweep(tables, grid, tmp_path)
        tables["data"] = {"dataset": toy_copy(1)}
        with pytest.raises(Interrupted):
            dragfl.sweep(tables, grid, tmp_path, Callbacks(should_stop=lambda: True), fresh=True)
        assert [dragfl.load_run(tmp_path / f"seed{i}").finished for i in (0, 1)] == [False, False]
        rounds: list[int] = []
        runs = dragfl.sweep(tables, grid, tmp_path, Callbacks(on_record=lambda record: rounds.append(record.round)))
        assert rounds == [2, 3, 1, 2, 3]
        assert [kept_bytes(run.path) for run in runs] == [
            kept_bytes(run.path) for run in dragfl.sweep(tables, grid, tmp_path / "new")
        ]

    def test_an_arena_starts_over_what_changed(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["--defences", "fedavg", "--attacks", "sign_flip,parts_x:Attack", "--out", "a", "--quiet"]
        assert main(["arena", "x.toml", *words]) == 0
        written = {path: path.stat().st_mtime_ns for path in folder.glob("a/runs/*/metrics.jsonl")}
        edit(folder, MODULE + "\n")
        assert main(["arena", "x.toml", *words]) == 2
        assert "but not the code of parts_x.py" in capsys.readouterr().err
        assert main(["arena", "x.toml", *words, "--fresh"]) == 0
        again = [path.parent.name for path, before in written.items() if path.stat().st_mtime_ns != before]
        assert len(written) == 3
        assert [name for name in again if "Attack" in name] == again != []


def test_a_file_edited_but_not_imported_again(folder: Path) -> None:
    """A run records the digests of the file and of the imported code, so one made in between matches neither later."""
    dragfl.run(dragfl.load("x.toml", OWN[0]), "r")
    (folder / "parts_x.py").write_text(MODULE.replace("step * 1.0", "step * 0.5"))
    with pytest.raises(SpecError, match=r"the code of parts_x\.py"):
        dragfl.run(dragfl.load("x.toml", OWN[0]), "r")
    dragfl.run(dragfl.load("x.toml", OWN[0]), "r", fresh=True)  # with the imported code
    sys.modules.pop("parts_x")  # as after a restart of Python
    with pytest.raises(SpecError, match=r"the code of algorithm\.aggregate"):
        dragfl.run(dragfl.load("x.toml", OWN[0]), "r")


def test_code_replaced_in_memory(folder: Path) -> None:
    """As in a notebook with `%autoreload`, or by hand; the file is the same."""
    run = dragfl.run(dragfl.load("x.toml", OWN[0]), "r")
    module = sys.modules["parts_x"]
    kept = module.Rule.finish
    module.Rule.finish = lambda *given: kept(*given)
    with pytest.raises(SpecError, match=r"but not the code of algorithm\.aggregate; "):
        dragfl.run(dragfl.load("x.toml", OWN[0]), "r")
    info = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps(with_digest(info | {"python": "3.9.1"})))
    assert dragfl.run(dragfl.load("x.toml", OWN[0]), "r").finished, "bytecode of another Python is not compared"
    (run.path / "run.json").write_text(json.dumps(with_digest(info | {"dragfl": "0.0.9"})))
    with pytest.warns(DragflWarning, match=r"made with dragfl 0\.0\.9"):
        assert dragfl.run(dragfl.load("x.toml", OWN[0]), "r").finished, "nor digests of another dragfl"


def test_parts_in_a_chain_and_objects(experiment: Load) -> None:
    def code(**tables: Any) -> set[str]:
        found: dict[str, Any] = Fingerprints().of(experiment(**tables))["code"]
        return set(found)

    assert code() == set()
    assert code(attack={"name": "alie", "attackers": 2}, algorithm={"name": "krum"}) == set()
    assert code(attack={"name": Flip(), "attackers": 2}) == {"attack.name"}
    assert code(model={"name": lambda shape, classes: nn.Linear(6, classes)}) == {"model.name"}
    assert code(model={"name": network()}) == set(), "layers of torch, and weights that have their own digest"


def test_many_runs_load_their_data_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tables = {"rounds": 1, "clients": {"total": 2, "local_steps": 1}, "model": {"name": "logistic"}}
    grid = {"seed": list(range(6))}
    dragfl.sweep(tables, grid, tmp_path)
    loaded: list[object] = []
    monkeypatch.setattr(fingerprints, "load_dataset", lambda name: loaded.append(name) or dragfl.data.load(name))
    ended: list[bool] = []
    dragfl.sweep(tables, grid, tmp_path, Callbacks(on_end=lambda run, already: ended.append(already)))
    assert ended == [True] * 6
    assert loaded == ["digits"]


def test_runs_of_an_older_version_warn_once(tmp_path: Path) -> None:
    tables = {"rounds": 1, "clients": {"total": 2, "local_steps": 1}, "model": {"name": "logistic"}}
    for run in dragfl.sweep(tables, {"seed": [0, 1, 2]}, tmp_path):
        info = json.loads((run.path / "run.json").read_text())
        del info["fingerprints"], info["digest"]
        (run.path / "run.json").write_text(json.dumps(info))
    with pytest.warns(DragflWarning, match="seed0 and 2 more runs: it was made by a version without") as seen:
        dragfl.sweep(tables, {"seed": [0, 1, 2]}, tmp_path)
    assert len(seen) == 1


def test_data_changed_in_place(experiment: Load, toy: dragfl.Dataset, tmp_path: Path) -> None:
    mine = replace(toy, x=toy.x.clone())
    spec = experiment(data={"dataset": mine})
    dragfl.run(spec, tmp_path / "r")
    mine.x[3, 2] += 1.0
    with pytest.raises(SpecError, match="but not the data"):
        dragfl.run(spec, tmp_path / "r")


def toy_copy(shift: int) -> dragfl.Dataset:
    x, y = torch.linspace(-1, 1, 360).reshape(60, 6), torch.arange(60) % 3
    return from_tensors(x, y.roll(shift), x, y)


def test_the_digest_of_data_reads_every_value() -> None:
    x, y = torch.arange(24, dtype=torch.uint8).reshape(4, 1, 2, 3), torch.tensor([0, 1, 0, 1])
    base = from_tensors(x, y, x, y)
    others = [
        replace(base, x=x + 1), replace(base, y=1 - y), replace(base, test_x=x + 1), replace(base, test_y=1 - y),
        replace(base, classes=3), replace(base, scale=16.0), replace(base, mean=(0.5,), std=(1.0,)),
        replace(base, groups=y), replace(base, x=x.reshape(4, 1, 3, 2), test_x=x.reshape(4, 1, 3, 2)),
        replace(base, x=x.float(), test_x=x.float()),
    ]  # fmt: skip
    assert len({digest_data(data) for data in [base, *others]}) == 11
    turned = x.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)
    assert not turned.is_contiguous()
    assert digest_data(replace(base, x=turned, name="other", class_names=("a", "b"))) == digest_data(base)


def test_a_federation_has_the_fingerprint_of_its_experiment(experiment: Load) -> None:
    """Whichever trainer orders the weights."""
    for trainer in ("reference", "auto"):
        spec = experiment(model={"name": network()}, engine={"trainer": trainer})
        assert fingerprints.of_simulation(dragfl.simulate(spec)) == Fingerprints().of(spec)
    tables = {"model": {"name": "cnn"}, "engine": {"trainer": "channels_last"}, "data": {"dataset": pictures()}}
    image = dragfl.load(tables)
    assert fingerprints.of_simulation(dragfl.simulate(image)) == Fingerprints().of(image)


def pictures() -> dragfl.Dataset:
    x, y = torch.zeros(40, 28, 28, dtype=torch.uint8), torch.arange(40) % 2
    return from_tensors(x, y, x, y)
