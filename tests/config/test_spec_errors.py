"""Every error in a spec is reported before anything runs: the key, the value, and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.errors import SpecError

BAD: list[tuple[dict[str, Any], str]] = [
    # values out of range
    ({"rounds": 0}, "rounds: 0 is below 1"),
    ({"seed": -1}, "seed: -1 is below 0"),
    ({"target_accuracy": 0.0}, "target_accuracy: 0.0 is outside (0, 1]"),
    ({"target_accuracy": 80.0}, "target_accuracy: 80.0 is outside (0, 1]; give a fraction such as 0.8"),
    ({"target_accuracy": float("nan")}, "target_accuracy: nan"),
    ({"stop_at_target": True}, "stop_at_target: true without target_accuracy"),
    ({"name": "a/b"}, "name: 'a/b' cannot name a run directory"),
    ({"name": ""}, "name: '' cannot name"),
    ({"name": ".."}, "name: '..' cannot name"),
    ({"clients": {"total": -3}}, "clients.total: -3 is below 1"),
    ({"clients": {"total": 5, "per_round": 6}}, "clients.per_round: 6 is more than clients.total = 5; lower per_round"),
    ({"clients": {"per_round": 0}}, "clients.per_round: 0 is below 1"),
    ({"clients": {"batch_size": 0}}, "clients.batch_size: 0 is below 1"),
    ({"clients": {"local_steps": 0}}, "clients.local_steps: 0 is below 1"),
    ({"clients": {"local_steps": [5, 2]}}, "the range [5, 2] is empty; give [least, most]"),
    ({"clients": {"local_steps": [1, 2, 3]}}, "clients.local_steps: expected `array` of length 2, got 3"),
    ({"clients": {"local_steps": 2, "local_epochs": 1}}, "clients.local_steps: 2, but local_epochs = 1 is given too"),
    ({"clients": {"lr": -0.1}}, "clients.lr: -0.1 is outside [0, 1e+06]"),
    ({"clients": {"lr": float("nan")}}, "clients.lr: nan is outside"),
    ({"clients": {"lr": {"kind": "linear", "start": 0.1}}}, "clients.lr.rounds: 0 for kind 'linear'"),
    ({"algorithm": {"name": "drag", "c": 1.5}}, "algorithm.c: 1.5 is outside [0, 1]"),
    ({"algorithm": {"name": "drag", "c": -0.1}}, "algorithm.c: -0.1 is outside [0, 1]"),
    ({"algorithm": {"name": "drag", "alpha": 0.0}}, "algorithm.alpha: 0.0 is outside (0, 1]"),
    ({"algorithm": {"server": {"name": "momentum", "beta": 1.0}}}, "algorithm.server.beta: 1.0 is outside [0, 1)"),
    ({"root": {"size": 0}}, "root.size: 0 is below 1"),
    ({"root": {"fixed_batch": 0}}, "root.fixed_batch: 0 is below 1"),
    ({"attack": {"name": "sign_flip", "attackers": -1}}, "attack.attackers: -1 is below 0"),
    ({"attack": {"name": "sign_flip", "attackers": 21}}, "attack.attackers: 21 is more than the 20 clients"),
    (
        {"clients": {"per_round": 3}, "attack": {"name": "sign_flip", "attackers": 4, "redraw": True}},
        "4 is more than the 3 clients",
    ),
    ({"attack": {"name": "sign_flip"}}, "attack.attackers: missing"),
    ({"attack": {"name": "sign_flip", "attackers": 1, "fraction": 0.1}}, "both attack.attackers and"),
    ({"attack": {"name": "sign_flip", "fraction": 1.5}}, "attack.fraction: 1.5"),
    ({"attack": {"name": "sign_flip", "attackers": 1, "counted_in": "sample"}}, "did you mean 'sampled'?"),
    ({"attack": {"name": "random_scaling", "attackers": 1, "variance": -1.0}}, "attack.variance: -1.0"),
    ({"evaluation": {"every": 0}}, "evaluation.every: 0 is below 1"),
    ({"checkpoint": {"every": -5}}, "checkpoint.every: -5 is below 1"),
    ({"engine": {"block": 0}}, "engine.block: 0 is below 1"),
    # unknown keys, at every level
    ({"ronds": 3}, "unknown key 'ronds'; did you mean 'rounds'?"),
    ({"client": {}}, "unknown key 'client'; did you mean 'clients'?"),
    ({"data": {"datset": "digits"}}, "data.datset: unknown key 'datset'; did you mean 'dataset'?"),
    ({"data": {"partition": {"kind": "dirichlet_class", "min_sise": 1}}}, "did you mean 'min_size'?"),
    ({"clients": {"locl_steps": 3}}, "clients.locl_steps: unknown key 'locl_steps'; did you mean 'local_steps'?"),
    ({"clients": {"lr": {"start": 0.1, "knd": "x"}}}, "clients.lr.knd: unknown key 'knd'; did you mean 'kind'?"),
    ({"root": {"sourse": "test"}}, "root.sourse: unknown key 'sourse'; did you mean 'source'?"),
    ({"algorithm": {"name": "drag", "alpa": 1.0}}, "algorithm.alpa: drag has no setting 'alpa'; did you mean 'alpha'?"),
    ({"algorithm": {"agregate": "drag"}}, "did you mean 'aggregate'?"),
    ({"algorithm": {"aggregate": {"name": "drag", "cc": 1.0}}}, "algorithm.aggregate.cc: unknown key 'cc'"),
    (
        {"algorithm": {"name": "drag", "c": {"start": 0.1, "perod": 2.0}}},
        "algorithm.c.perod: unknown key 'perod'; did you mean 'period'?",
    ),
    ({"algorithm": {"name": "drag", "c": 0.1, "aggregate": "drag"}}, "write algorithm.aggregate.c instead"),
    ({"algorithms": {"darg": {"c": 0.1}}}, "algorithms.darg: unknown algorithm 'darg'; did you mean 'drag'?"),
    ({"algorithms": {"drag": {"alpa": 0.1}}}, "algorithms.drag.alpa: drag has no setting 'alpa'"),
    ({"attack": {"name": "sign_flip", "attackers": 1, "redrow": True}}, "did you mean 'redraw'?"),
    ({"attack": {"name": "sign_flip", "attackers": 1, "scal": 2.0}}, "did you mean 'scale'?"),
    ({"model": {"hiden": 3}}, "model.hiden: unknown key 'hiden'; did you mean 'hidden'?"),
    ({"evaluation": {"evry": 1}}, "evaluation.evry: unknown key 'evry'; did you mean 'every'?"),
    ({"checkpoint": {"evry": 1}}, "checkpoint.evry: unknown key 'evry'; did you mean 'every'?"),
    ({"engine": {"blck": 1}}, "engine.blck: unknown key 'blck'; did you mean 'block'?"),
    # unknown names
    ({"data": {"dataset": "digts"}}, "data.dataset: unknown dataset 'digts'; did you mean 'digits'?"),
    ({"data": {"partition": "sorted_shard"}}, "unknown name 'sorted_shard'; did you mean 'sorted_shards'?"),
    ({"algorithm": {"name": "dragg"}}, "algorithm.name: unknown algorithm 'dragg'; did you mean 'drag'?"),
    ({"algorithm": {"aggregate": "drg"}}, "algorithm.aggregate.name: unknown name 'drg'; did you mean 'drag'?"),
    ({"algorithm": {"server": "momentun"}}, "did you mean 'momentum'?"),
    ({"attack": {"name": "signflip", "attackers": 1}}, "unknown name 'signflip'; did you mean 'sign_flip'?"),
    ({"model": {"name": "mpl"}}, "model.name: unknown name 'mpl'; did you mean 'mlp'?"),
    ({"algorithm": {"aggregate": {"c": 0.1}}}, "algorithm.aggregate: no name in {'c': 0.1}"),
    ({"algorithm": {"name": ["drag"]}}, "algorithm.name: ['drag'] is no name"),
    ({"model": {"name": "no_such_module:Net"}}, "cannot import 'no_such_module'"),
    ({"model": {"name": ":Net"}}, "model.name: cannot import ''"),
    ({"model": {"name": "math:sine"}}, "module 'math' has no 'sine'; did you mean 'sin'?"),
    # words and types
    ({"root": {"source": "tset"}}, "root.source: unknown value 'tset'; did you mean 'test'?"),
    ({"clients": {"sampling": "epochs"}}, "clients.sampling: unknown value 'epochs'; did you mean 'epoch'?"),
    ({"algorithm": {"name": "drag", "variant": "papr"}}, "did you mean 'paper'?"),
    ({"algorithm": {"name": "drag", "c": {"start": 0.1, "kind": "cosin"}}}, "did you mean 'cosine'?"),
    ({"rounds": "ten"}, "rounds: expected `int`, got `str` (value 'ten')"),
    ({"rounds": 2.5}, "rounds: expected `int`, got `float` (value 2.5)"),
    ({"seed": True}, "seed: expected `int`, got `bool` (value True)"),
    ({"clients": {"total": "5"}}, "clients.total: expected `int`, got `str` (value '5')"),
    ({"clients": {"lr": "fast"}}, "clients.lr: expected `float | table`, got `str` (value 'fast')"),
    ({"algorithm": {"name": "drag", "c": "big"}}, "algorithm.c: expected `float | table`, got `str`"),
    ({"attack": {"name": "sign_flip", "attackers": 1.5}}, "attack.attackers: expected `int`, got `float`"),
    ({"model": {"hidden": 3.5}}, "model.hidden: expected int, got 3.5"),
    ({"model": {"double_softmax": 1}}, "model.double_softmax: expected `bool`, got `int` (value 1)"),
    ({"clients": 5}, "clients: expected a table, got 5; write [clients]"),
    ({"algorithms": {"drag": 5}}, "algorithms.drag: expected a table, got 5"),
    ({"model": {"name": "math:pi"}}, "is not callable"),
    # what no table can check alone
    ({"algorithm": {"name": "br_drag"}}, "'br_drag' needs trusted root data and there is no [root] table"),
    ({"algorithm": {"name": "fltrust"}}, "'fltrust' needs trusted root data"),
    ({"algorithm": {"correction": "scaffold", "aggregate": "rlr"}}, "scaffold sends dc with each update, and rlr"),
]  # fmt: skip


@pytest.mark.parametrize(("tables", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_tables(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)) as error:
        dragfl.load(tables)
    assert error.value.exit_code == 2


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.toml: no such file; give a TOML experiment"):
        dragfl.load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"rounds = ", "x.toml:1:10: not valid TOML: invalid value: 'rounds ='; fix this line"),
        (b"[clients\n", "x.toml:1:9: not valid TOML: expected ']' at the end of a table declaration: '[clients'"),
        (b"rounds = 1\nrounds = 2\n", "x.toml:2:11: not valid TOML: cannot overwrite a value: 'rounds = 2'"),
        (b'seed = 1\nname = "a', "x.toml:2:10: not valid TOML: unterminated string: 'name = \"a'; fix this line"),
        (b"\xff\xfe\x00", "x.toml: cannot be read as text ('utf-8' codec can't decode byte 0xff in position 0"),
    ],
)
def test_not_toml(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=re.escape(message)):
        dragfl.load(path)


def test_a_folder_is_not_a_spec(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot be read \(Is a directory\); give a TOML experiment"):
        dragfl.load(tmp_path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"name": "cnn"}, "images of 8x8 are too small"),
        ({"name": "torch.nn:Identity"}, r"answers with shape \(2, 1, 8, 8\)|no trainable parameters"),
        ({"name": "collections:OrderedDict"}, "OrderedDict has no parameters that can be read"),
        ({"name": "fractions:Fraction"}, "model.name: fractions:Fraction made a Fraction; return an nn.Module"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_the_first_round(model: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        dragfl.simulate(dragfl.load({"model": model}))


def test_an_unknown_device() -> None:
    with pytest.raises(SpecError, match=r"engine\.device: 'cpuu' cannot be used here"):
        dragfl.simulate(dragfl.load({"engine": {"device": "cpuu"}}))
