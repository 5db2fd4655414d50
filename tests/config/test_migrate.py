"""Keys of version 0.1: refused with their new names, translated for readers of stored runs, rewritten in files."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.algorithms import PARTS
from dragfl.attacks import ATTACKS
from dragfl.config.migrate import OLD_KEYS, OLD_NAMES, migrate_path, migrate_text, rename_keys, rename_override
from dragfl.errors import DragflWarning, SpecError
from dragfl.report import find_runs, group_runs

ATTACK_TABLE = ("attack", {"name": "sign_flip", "attackers": 1})
OWNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "attack": ATTACK_TABLE,
    "root": ("root", {}),
    "evaluation": ("evaluation", {}),
    "state": ("state", {}),
}


def tables_with(owner: str, key: str) -> tuple[dict[str, Any], str]:
    """A spec in which an owner has an old key, and the dotted path of the table it is in."""
    if owner in OWNERS:
        table, settings = OWNERS[owner]
        return {table: {**settings, key: 1}}, table
    if owner in ATTACKS:
        return {"attack": {"name": owner, "attackers": 1, key: 1}}, "attack"
    return {"algorithm": {"aggregate": {"name": owner, key: 1}}}, "algorithm.aggregate"


@pytest.mark.parametrize(("owner", "old"), [(owner, old) for owner, keys in OLD_KEYS.items() for old in keys])
def test_an_old_key_is_refused_with_its_new_name(owner: str, old: str) -> None:
    tables, path = tables_with(owner, old)
    new = OLD_KEYS[owner][old]
    with pytest.raises(SpecError, match=rf"^{path}\.{old}: .*write {path}\.{new} "):
        dragfl.load(tables)


@pytest.mark.parametrize(("part", "old"), [(part, old) for part, names in OLD_NAMES.items() for old in names])
def test_an_old_name_is_refused_with_its_new_name(part: str, old: str) -> None:
    new = OLD_NAMES[part][old]
    for given in (old, {"name": old}):
        with pytest.raises(SpecError, match=rf"algorithm\.{part}.*write .*\"{new}\""):
            dragfl.load({"algorithm": {part: given}})
    assert old not in PARTS[part]
    dragfl.load({"algorithm": {part: new}, "root": {}})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["root.from=test"], "write root.source "),
        (["algorithm.name=fools_gold", "algorithm.on_all_alike=skip"], "write algorithm.on_identical "),
        (["algorithm.server=last_two"], 'write algorithm.server = "sgd"'),
    ],
)
def test_an_old_key_in_an_override(overrides: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        dragfl.load({}, *overrides)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"attacks": {"label_flip": {"fraction": 0.5}}}, "write attacks.label_flip.sample_fraction"),
        ({"algorithms": {"sign_guard": {"share": 0.5}}}, "write algorithms.sign_guard.fraction"),
        (
            {"algorithm": {"aggregate": {"chain": ["nnm", {"name": "sign_guard", "share": 0.5}]}}},
            "write algorithm.aggregate.chain[1].fraction",
        ),
    ],
)
def test_an_old_key_deeper_in_the_tables(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        dragfl.load(tables)


@pytest.mark.parametrize(
    ("owner", "old", "new"), [(owner, old, new) for owner, keys in OLD_KEYS.items() for old, new in keys.items()]
)
def test_old_keys_are_documented(owner: str, old: str, new: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    assert f"| `{owner}` | `{old}` | `{new}` |" in page


def test_new_keys_are_no_old_keys() -> None:
    """`attack.fraction` is the fraction of attackers today, and was that of the poisoned samples."""
    tables = {"attack": {"name": "label_flip", "fraction": 0.2, "sample_fraction": 0.5}}
    assert rename_keys(tables) == tables
    assert dragfl.load(tables).attackers.fraction == 0.2
    old = {"attack": {"name": "label_flip", "share": 0.2, "fraction": 0.5}}
    assert rename_keys(old) == tables


RESOLVED_01 = """\
[algorithm.server]
name = "extrapolate"
report = "average"

[evaluation]
every = 10

[state]
lost = "error"
"""


def test_a_removed_key() -> None:
    """0.1 evaluated AdaBest's average: a stored run says so today, a new spec is refused with what to do."""
    with pytest.raises(SpecError, match=r"^algorithm\.report: removed; evaluation\.iterate chooses"):
        dragfl.load({"algorithm": {"name": "adabest", "report": "model"}})
    text, changes = migrate_text(RESOLVED_01)
    assert len(changes) == 4
    assert text == (
        RESOLVED_01.replace("extrapolate", "adabest")
        .replace('report = "average"\n', "")
        .replace("[evaluation]\n", '[evaluation]\niterate = "own"\n')
        .replace("lost", "on_missing")
    )
    assert rename_keys(tomllib.loads(RESOLVED_01)) == tomllib.loads(text)
    assert "iterate" not in migrate_text(RESOLVED_01.replace('"average"', '"model"'))[0]
    assert rename_override("algorithms.adabest.report=model") == "algorithms.adabest.report=model"


def test_an_algorithm_that_is_no_table_is_left_to_the_checks() -> None:
    assert rename_keys({"algorithm": "drag", "state": {"lost": "zero"}})["algorithm"] == "drag"
    assert rename_keys({"algorithm": {"server": "sgd"}, "state": {"lost": "zero"}})["state"] == {"on_missing": "zero"}


SPEC_01 = """\
# our experiment
rounds = 3
root = { size = 30, from = "test", clean = 'confident' }  # from = where the samples are

[attack]
name = "label_flip"
share = 0.2        # share = 0.2 of the clients
"fraction" = 0.5
among = "all"

[algorithm]
aggregate = { name = "fools_gold", on_all_alike = "skip" }
server.name = "last_two"  # not "extrapolate"

[state]
lost = "zero"
"""


def test_a_spec_of_01_keeps_its_comments_and_layout() -> None:
    """Seven keys and one name change where they are, and `forge_extras` repeats what 0.1 did."""
    text, changes = migrate_text(SPEC_01)
    assert len(changes) == 9
    assert text == (
        SPEC_01.replace('size = 30, from = "test", clean', 'size = 30, source = "test", filter')
        .replace('"fraction" = 0.5', "sample_fraction = 0.5")
        .replace("share = 0.2        #", "fraction = 0.2        #")
        .replace("among", "counted_in")
        .replace("on_all_alike", "on_identical")
        .replace('"last_two"', '"sgd"')
        .replace("lost =", "on_missing =")
        .replace("[attack]\n", "[attack]\nforge_extras = false\n")
    )
    experiment = dragfl.load(tomllib.loads(text))
    assert experiment.attackers.fraction == 0.2 and experiment.root is not None and experiment.root.source == "test"
    assert migrate_text(text) == (text, [])


def test_a_file_is_rewritten_with_a_backup(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(SPEC_01)
    changed = migrate_path(file)
    assert file.with_name("x.toml.bak").read_text() == SPEC_01
    assert "root.from -> root.source" in [str(change) for change in changed[file]]
    dragfl.load(file)
    assert migrate_path(file) == {}
    file.write_text(SPEC_01)
    with pytest.raises(SpecError, match=r"x\.toml\.bak exists already"):
        migrate_path(file)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.toml", "x.toml.bak"]


def test_nothing_is_written_if_one_file_is_broken(tmp_path: Path) -> None:
    for name, text in (("a", SPEC_01), ("b", "rounds = ")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec.toml").write_text(text)
    with pytest.raises(SpecError, match=r"b/spec\.toml:1:10: not valid TOML.*nothing was written"):
        migrate_path(tmp_path)
    assert (tmp_path / "a" / "spec.toml").read_text() == SPEC_01
    assert not list(tmp_path.rglob("*.bak"))


@pytest.mark.parametrize(("name", "message"), [("nowhere", "no such file"), ("empty", "holds no spec.toml")])
def test_a_path_that_is_neither_spec_nor_run(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match=message):
        migrate_path(tmp_path / name)


RUN_SPEC_01 = """\
name = "run"
seed = 0
rounds = 2
stop_at_target = false

[data]
dataset = "digits"

[data.partition]
kind = "iid"

[root]
size = 30
disjoint = true
from = "train"
noise = 0.0
clean = "none"
favourite = 0
accumulate = false

[clients]
total = 4
per_round = 4
local_steps = 1
batch_size = 20
lr = 0.1
sampling = "replacement"

[algorithm]
name = "fedavg"

[algorithm.correction]
name = "none"

[algorithm.aggregate]
name = "mean"
weighting = "uniform"

[algorithm.server]
name = "sgd"
lr = 1.0

[attack]
name = "alie"
side = "below"
knowledge = "omniscient"
evaluations = 24
attackers = 1
redraw = false
among = "all"

[model]
name = "mlp"
hidden = 500
double_softmax = false
buffers = "refuse"

[evaluation]
every = 1
block = 1000

[checkpoint]
every = 10

[state]
memory_mb = 1024
lost = "error"

[engine]
device = "cpu"
block = 4
trainer = "dense"
workers = "auto"
executor = "auto"
"""


@pytest.fixture
def run_01(tmp_path: Path) -> Path:
    """A finished run as version 0.1 wrote it."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "spec.toml").write_text(RUN_SPEC_01)
    (folder / "run.json").write_text(json.dumps({"dragfl": "0.1.0", "seed": 0}))
    rows = [{"round": t, "accuracy": 0.5, "loss": 1.0, "bytes_up": 1, "bytes_down": 1} for t in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "result.json").write_text(json.dumps({"rounds": 2, "stopped_by": "rounds", "accuracy": 0.5}))
    return folder


def test_a_run_of_01_is_read_with_new_keys(run_01: Path) -> None:
    spec = dragfl.load_run(run_01).spec
    assert spec["root"]["source"] == "train" and spec["state"]["on_missing"] == "error"
    assert spec["evaluation"]["batch_size"] == 1000 and spec["attack"]["counted_in"] == "all"
    assert spec["attack"]["forge_extras"] is False  # attackers of 0.1 forged no extras
    (group,) = group_runs(find_runs(run_01))
    assert group.seeds == (0,)


def test_a_run_of_01_is_of_the_same_experiment(run_01: Path) -> None:
    """A finished run is not repeated."""
    tables = {
        "rounds": 2, "root": {"size": 30}, "clients": {"total": 4, "local_steps": 1}, "evaluation": {"every": 1},
        "attack": {"name": "alie", "attackers": 1, "counted_in": "all"},
    }  # fmt: skip
    with pytest.warns(DragflWarning, match="a version without fingerprints"):
        again = dragfl.run(dragfl.load(tables), run_01)
    assert again.accuracy == [(1, 0.5), (2, 0.5)]
    with pytest.raises(SpecError, match="another experiment"):
        dragfl.run(dragfl.load(tables, "clients.lr=0.2"), run_01)


def test_a_run_of_01_is_rewritten(run_01: Path) -> None:
    before = dragfl.load_run(run_01).spec
    (changes,) = migrate_path(run_01).values()
    after = tomllib.loads((run_01 / "spec.toml").read_text())
    assert len(changes) == 7 and after == before
    assert dragfl.load(after).attackers.forge_extras is False
    assert (run_01 / "spec.toml.bak").read_text() == RUN_SPEC_01


def test_the_client_states_of_a_run_of_01_are_renamed(run_01: Path) -> None:
    (run_01 / "clients.slab").write_bytes(b"states")
    migrate_path(run_01)
    assert (run_01 / "client_states.bin").read_bytes() == b"states"
    assert not (run_01 / "clients.slab").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("root.from=test", "root.source=test"),
        ("algorithm.server=extrapolate", "algorithm.server=adabest"),
        ("algorithm.server.name=last_two", "algorithm.server.name=sgd"),
        ("data.dataset=emnist47", "data.dataset=emnist47"),
        ("attack.fraction=0.5", "attack.fraction=0.5"),
    ],
)
def test_an_override_of_01(old: str, new: str) -> None:
    assert rename_override(old) == new
