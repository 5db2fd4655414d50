"""A damaged run is reported with exit code 6 and left unchanged; files left over by a crash are not damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main
from dragfl.errors import Interrupted
from tests.conftest import kept_bytes

Damage = Callable[[Path], None]


@pytest.fixture
def stopped(digits_toml: Path, tmp_path: Path) -> Path:
    """A run stopped after round 6 of 12."""
    folder = tmp_path / "r"
    asked = iter([False] * 5 + [True])
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load(digits_toml), folder, should_stop=lambda: next(asked))
    return folder


def tensors(folder: Path) -> Path:
    (path,) = folder.glob("checkpoint-*.safetensors")
    return path


def edit(folder: Path, **changes: object) -> None:
    table = json.loads((folder / "checkpoint.json").read_text())
    (folder / "checkpoint.json").write_text(json.dumps(table | changes))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


DAMAGES: dict[str, tuple[Damage, str]] = {
    "tensors truncated": (lambda f: cut(tensors(f), 7), "checksum mismatch of checkpoint-"),
    "tensors empty": (lambda f: tensors(f).write_bytes(b""), "checksum mismatch of checkpoint-"),
    "tensors missing": (lambda f: tensors(f).unlink(), "No such file"),
    "a byte of a tensor": (lambda f: flip(tensors(f), -3), "checksum mismatch of checkpoint-"),
    "a byte of the header": (lambda f: flip(tensors(f), 20), "checksum mismatch of checkpoint-"),
    "json truncated": (lambda f: cut(f / "checkpoint.json", 9), "checkpoint.json: cannot be used"),
    "json of another kind": (lambda f: (f / "checkpoint.json").write_text("[1, 2]"), "cannot be used"),
    "no json": (lambda f: (f / "checkpoint.json").write_bytes(b"\x00\xff" * 9), "cannot be used"),
    "another round": (lambda f: edit(f, round=5), "(checksum mismatch)"),
    "another length": (lambda f: edit(f, lengths={"metrics.jsonl": 0}), "(checksum mismatch)"),
    "another format": (lambda f: edit(f, format=99), "format 99, this version of dragfl reads 1"),
    "metrics too short": (lambda f: cut(f / "metrics.jsonl", 10), "metrics.jsonl: "),
    "clients too short": (
        lambda f: cut(f / "clients.jsonl", 10),
        "at the last checkpoint",
    ),
    "timing gone": (lambda f: (f / "timing.jsonl").unlink(), "timing.jsonl: 0 bytes"),
    "spec not toml": (lambda f: (f / "spec.toml").write_text("rounds ="), "spec.toml: cannot be read"),
    "spec misspelt": (
        lambda f: (f / "spec.toml").write_text((f / "spec.toml").read_text().replace("rounds", "runds", 1)),
        "unknown key 'runds'",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_reported_and_nothing_is_changed(
    stopped: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, message = DAMAGES[name]
    with (stopped / "metrics.jsonl").open("a") as file:  # what a resume would cut off
        file.write('{"round":7,')
    damage(stopped)
    if "short" in name:
        cut(stopped / name.replace(" too short", ".jsonl"), 40)
    before = {p.name: p.read_bytes() for p in stopped.iterdir() if p.name != "lock"}
    assert main(["resume", str(stopped)]) == 6
    err = capsys.readouterr().err
    assert err.startswith("dragfl: ")
    assert message in err
    assert {p.name: p.read_bytes() for p in stopped.iterdir() if p.name != "lock"} == before


def test_leftovers_of_a_crash_are_harmless(stopped: Path, digits_toml: Path, tmp_path: Path) -> None:
    """Half-written temporary files, torn lines, rounds after the checkpoint, an older checkpoint's tensors."""
    whole = dragfl.run(dragfl.load(digits_toml), tmp_path / "whole")
    (stopped / "checkpoint.json.tmp").write_text('{"format": 1, "rou')
    (stopped / "checkpoint-00000008.safetensors.tmp").write_bytes(b"half")
    (stopped / "checkpoint-00000002.safetensors").write_bytes(b"old")
    (stopped / "checkpoint-00000008.safetensors").write_bytes(b"whole, but its json was never written")
    for name in ("metrics.jsonl", "clients.jsonl", "timing.jsonl"):
        with (stopped / name).open("a") as file:
            file.write('{"round":7}\n{"round":8,"tor')
    resumed = dragfl.resume(stopped)
    assert kept_bytes(resumed.path) == kept_bytes(whole.path)
    assert [row["round"] for row in resumed.timing] == list(range(1, 13))
    assert sorted(p.name for p in stopped.iterdir()) == sorted(p.name for p in whole.path.iterdir())


def test_no_checkpoint_yet_starts_from_the_beginning(stopped: Path, digits_toml: Path, tmp_path: Path) -> None:
    whole = dragfl.run(dragfl.load(digits_toml), tmp_path / "whole")
    (stopped / "checkpoint.json").unlink()
    assert kept_bytes(dragfl.resume(stopped).path) == kept_bytes(whole.path)


def test_killed_between_the_last_round_and_the_result(digits_toml: Path, tmp_path: Path) -> None:
    for overrides in ([], ["target_accuracy=0.3", "stop_at_target=true"]):
        done = dragfl.run(dragfl.load(digits_toml, *overrides), tmp_path / f"r{len(overrides)}")
        whole, result = kept_bytes(done.path), done.result
        (done.path / "result.json").unlink()
        (done.path / "model.safetensors").unlink()
        again = dragfl.resume(done.path)
        assert kept_bytes(again.path) == whole
        assert again.result == result


def test_killed_before_the_spec_was_written(digits_toml: Path, tmp_path: Path) -> None:
    """The directory and run.json come first; `dragfl run` then starts from the beginning."""
    (tmp_path / "r").mkdir()
    for name in ("lock", "run.json", "spec.toml.tmp"):
        (tmp_path / "r" / name).write_text("")
    assert main(["resume", str(tmp_path / "r")]) == 6
    assert main(["run", str(digits_toml), "--out", str(tmp_path / "r"), "--quiet"]) == 0
