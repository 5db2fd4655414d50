"""Over 200 wrong inputs, over all commands: one line on stderr, the right exit code, and nothing is written.

Where code of the user raised, its traceback follows.
Every row is `main()` in a folder of good and damaged files. The rows are in `wrong_inputs/`.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dragfl
from dragfl.cli import main
from dragfl.errors import Interrupted
from tests.cli.wrong_inputs.commands import COMMANDS, DATA, OVERRIDES
from tests.cli.wrong_inputs.specs import SPECS

GOOD = """
name = "good"
rounds = 2
[clients]
total = 6
local_steps = 1
[algorithm]
name = "drag"
[attack]
name = "sign_flip"
attackers = 1
[model]
name = "logistic"
[checkpoint]
every = 1
"""
MODULES = {
    "fails.py": "raise RuntimeError('at import')\n",
    "needs_more.py": "import not_there\n",
    "broken.py": "def Net(:\n",
    "mine.py": "import torch\n\nnumber = 3\n\n\ndef three(*_, **__):\n    return 3\n\n\n"
    "def raises(shape, classes):\n    raise RuntimeError('inside')\n\n\n"
    "def empty_net(shape, classes):\n    return torch.nn.Flatten()\n",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a good experiment, and with files and run directories that are damaged in many ways."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "good.toml").write_text(GOOD)
    (folder / "wrong.toml").write_text("[clients]\nlr = 'fast'\n")
    (folder / "broken.toml").write_text("rounds = ")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (folder / "somewhere").mkdir()
    (folder / "somewhere" / "notes.txt").write_text("not a run")
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    write_arrays(folder)
    write_runs(folder)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    yield folder
    sys.dont_write_bytecode = bytecode
    for name in MODULES:
        sys.modules.pop(name.removesuffix(".py"), None)


def write_arrays(folder: Path) -> None:
    x, y = np.zeros((9, 4), np.float32), np.arange(9) % 3
    files = {
        "no_labels": {"x": x},
        "half_test": {"x": x, "y": y, "test_x": x},
        "lengths": {"x": x, "y": y[:8]},
        "nan": {"x": np.full_like(x, np.nan), "y": y},
        "float_labels": {"x": x, "y": y + 0.5},
        "words": {"x": x, "y": np.array(list("abcabcabc"))},
        "negative": {"x": x, "y": y - 1},
        "empty": {"x": x[:0], "y": y[:0]},
        "pickled": {"x": x, "y": np.array([{}] * 9, dtype=object)},
        "truncated": {"x": x, "y": y},
    }
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    np.save(folder / "bare.npy", x)
    whole = (folder / "truncated.npz").read_bytes()
    (folder / "truncated.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "text.npz").write_text("not an archive")


def write_runs(folder: Path) -> None:
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load(folder / "good.toml"), folder / "stopped", should_stop=lambda: True)
    dragfl.run(dragfl.load(folder / "good.toml", "rounds=1"), folder / "done")
    dragfl.run(dragfl.load(folder / "good.toml", "rounds=1", "seed=5"), folder / "other")
    for name, source in {"bad_result": "done"}.items():
        shutil.copytree(folder / source, folder / name)
    for name in ("bad_spec", "wrong_spec", "bad_checkpoint", "bad_state", "short_log"):
        shutil.copytree(folder / "stopped", folder / name)
    (folder / "bad_result" / "result.json").write_text("{")
    (folder / "bad_spec" / "spec.toml").write_text("rounds = ")
    (folder / "wrong_spec" / "spec.toml").write_text("rounds = 0")
    (folder / "bad_checkpoint" / "checkpoint.json").write_text("[]")
    next((folder / "bad_state").glob("checkpoint-*.safetensors")).write_bytes(b"nothing")
    (folder / "short_log" / "metrics.jsonl").write_text("")


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def check(
    world: Path,
    argv: list[str],
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setenv("COLUMNS", "100")
    before = contents(world)
    returned = main(argv)
    err = capsys.readouterr().err
    assert err.startswith("dragfl: "), err
    assert err.endswith("\n"), err
    _, *rest = err.splitlines()
    assert not rest or rest[0].startswith("Traceback of your code"), err
    assert words in err
    assert returned == code, err
    assert contents(world) == before


@pytest.mark.parametrize(("text", "words"), SPECS, ids=[text for text, _ in SPECS])
def test_specs(
    world: Path, text: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (world / "x.toml").write_text(text)
    check(world, ["run", "x.toml"], 2, words, monkeypatch, capsys)


@pytest.mark.parametrize(("word", "words"), OVERRIDES, ids=[word for word, _ in OVERRIDES])
def test_overrides(
    world: Path, word: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(world, ["run", "good.toml", word], 2, words, monkeypatch, capsys)


@pytest.mark.parametrize(("word", "words"), DATA, ids=[word for word, _ in DATA])
def test_data(
    world: Path, word: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(world, ["run", "good.toml", word], 3, words, monkeypatch, capsys)


@pytest.mark.parametrize(("line", "code", "words"), COMMANDS, ids=[line for line, *_ in COMMANDS])
def test_commands(
    world: Path, line: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(world, shlex.split(line), code, words, monkeypatch, capsys)


def test_there_are_two_hundred_different_ones() -> None:
    rows = [(i, row[0]) for i, table in enumerate((SPECS, OVERRIDES, DATA, COMMANDS)) for row in table]
    assert len(set(rows)) == len(rows) >= 200
