"""The main job in small: client drift, then an attacked federation, on the embedded digits."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragfl.config.spec import Experiment

DRIFT = ("fedavg", "drag")
ATTACKED = ("fedavg", "fltrust", "br_drag")
ATTACKS = ("random_scaling", "sign_flip")


def experiments(rounds: int | None = None) -> list[Experiment]:
    """The eight runs of the demo, in order."""
    shorter = [] if rounds is None else [f"rounds={rounds}"]
    drift = [_load("drift.toml", f"name=drift-{name}", f"algorithm.name={name}", *shorter) for name in DRIFT]
    attacked = [
        _load(
            "attack.toml",
            f"name={attack}-{name}",
            f"algorithm.name={name}",
            f"attack.name={attack}",
            *shorter,
        )
        for attack in ATTACKS
        for name in ATTACKED
    ]
    return drift + attacked


def write_specs(folder: Path) -> None:
    """Put the two experiments beside the results, to be changed and run again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("drift.toml", "attack.toml"):
        (folder / name).write_bytes(files("dragfl.demo").joinpath(name).read_bytes())


def _load(name: str, *overrides: str) -> Experiment:
    from dragfl.config.spec import load

    with as_file(files("dragfl.demo").joinpath(name)) as path:
        return load(path, *overrides)
