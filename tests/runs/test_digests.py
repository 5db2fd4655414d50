"""A changed byte in any file of a run is detected and its file is named, by resume and by the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import dragfl
from dragfl import report
from dragfl.cli import main
from dragfl.errors import DamagedRun, Interrupted
from dragfl.runs.digests import is_intact, with_digest
from tests.conftest import DIGITS, kept_bytes


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "x.toml").write_text(DIGITS)
    return dragfl.run(folder / "x.toml", folder / "r").path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, seen = tmp_path_factory.mktemp("stopped"), []
    (folder / "x.toml").write_text(DIGITS)
    with pytest.raises(Interrupted):
        dragfl.run(folder / "x.toml", folder / "r", on_record=seen.append, should_stop=lambda: len(seen) == 6)
    return folder / "r"


def changed_digit(path: Path) -> None:
    """Another last digit in the first third of a text; the text stays valid."""
    content = bytearray(path.read_bytes())
    place = next(
        i for i in range(len(content) // 3, 0, -1) if chr(content[i]).isdigit() and content[i + 1] not in b"0123456789"
    )
    content[place] = ord("1") if content[place] != ord("1") else ord("2")
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.jsonl", "timing.jsonl", "run.json", "result.json"])
def test_a_digit_of_a_finished_run(finished: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(finished, run := tmp_path / "r")
    changed_digit(run / name)
    for read in (dragfl.resume, report.read_summary):
        with pytest.raises(DamagedRun, match=rf"{name}: cannot be read \(checksum mismatch"):
            read(run)


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.jsonl", "timing.jsonl"])
def test_a_missing_log_of_a_finished_run(finished: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(finished, run := tmp_path / "r")
    (run / name).unlink()
    with pytest.raises(DamagedRun, match=rf"{name}: cannot be read \(the file is missing\)"):
        dragfl.resume(run)
    with pytest.raises(DamagedRun, match=name):
        report.read_summary(run)


def test_a_damaged_checkpoint_is_no_damage_of_the_logs(stopped: Path, tmp_path: Path) -> None:
    """Its lengths and checksums of the logs are not used if its own checksum does not match."""
    shutil.copytree(stopped, run := tmp_path / "r")
    table = json.loads((run / "checkpoint.json").read_text())
    table["lengths"]["metrics.jsonl"] -= 1
    (run / "checkpoint.json").write_text(json.dumps(table))
    assert dragfl.load_run(run).metrics == dragfl.load_run(stopped).metrics
    with pytest.raises(DamagedRun, match=r"checkpoint\.json: cannot be used \(checksum mismatch\)"):
        dragfl.resume(run)


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.jsonl", "timing.jsonl"])
def test_a_digit_before_the_checkpoint_of_a_stopped_run(stopped: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(stopped, run := tmp_path / "r")
    changed_digit(run / name)
    with pytest.raises(DamagedRun, match=f"{name}: checksum mismatch of the first"):
        dragfl.resume(run)
    with pytest.raises(DamagedRun, match=rf"{name}: cannot be read \(checksum mismatch\)"):
        report.read_summary(run)


def test_a_setting_of_a_stopped_run(stopped: Path, tmp_path: Path) -> None:
    """The result would be that of another experiment. A setting that does not decide the result may be changed."""
    shutil.copytree(stopped, run := tmp_path / "r")
    spec = (run / "spec.toml").read_text()
    assert "local_steps = 2" in spec and "every = 4" in spec
    (run / "spec.toml").write_text(spec.replace("local_steps = 2", "local_steps = 3"))
    for read in (dragfl.resume, report.read_summary):
        with pytest.raises(DamagedRun, match=r"spec\.toml: .*its settings are not those of the start"):
            read(run)
    (run / "spec.toml").write_text(spec.replace("every = 4", "every = 5"))
    assert dragfl.resume(run).finished


def test_a_damaged_model_is_named_and_can_be_restored(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, run := tmp_path / "r")
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (run / "model.safetensors").write_bytes(content)
    assert main(["resume", str(run)]) == 6
    with pytest.raises(DamagedRun, match=r"model\.safetensors: .*checksum mismatch.*delete it"):
        dragfl.load_run(run).model()
    (run / "model.safetensors").unlink()
    assert kept_bytes(dragfl.resume(run).path) == kept_bytes(finished)


def test_a_run_of_an_earlier_version_has_no_checksums_and_can_be_read(
    stopped: Path, finished: Path, tmp_path: Path
) -> None:
    for name, folder in {"stopped": stopped, "finished": finished}.items():
        shutil.copytree(folder, run := tmp_path / name)
        info, table = (json.loads((run / file).read_text()) for file in ("run.json", "checkpoint.json"))
        (run / "run.json").write_text(
            json.dumps({k: info[k] for k in info if k not in ("settings", "files", "digest")})
        )
        del table["digests"]
        (run / "checkpoint.json").write_text(json.dumps(with_digest(table)))
        assert report.read_summary(run).rows
        assert kept_bytes(dragfl.resume(run).path) == kept_bytes(finished)


def test_the_checksum_of_a_table() -> None:
    table = with_digest({"a": 1, "b": [2.5]})
    assert is_intact(table) and is_intact({"b": [2.5], **table}) and is_intact({"a": 1})
    assert not is_intact(table | {"a": 2})
    assert with_digest(table) == table
