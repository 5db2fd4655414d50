"""The experiments of `dragfl demo`: client drift, then attacks, on the built-in digits dataset."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from dragfl.config.spec import Experiment, load

SPECS = ("drift.toml", "attack.toml")


def load_experiments(rounds: int | None = None) -> dict[str, Experiment]:
    """The ten runs of the demo, in order, by the name of their run directory."""
    changes = [] if rounds is None else [f"rounds={rounds}"]

    def load_spec(file: str, algorithm: str, *attack: str) -> Experiment:
        with as_file(files("dragfl.demo").joinpath(file)) as path:
            return load(path, "name=demo", f"algorithm.name={algorithm}", *attack, *changes)

    drift = {f"drift-{name}": load_spec("drift.toml", name) for name in ("fedavg", "drag")}
    return drift | {
        f"{attack}-{name}": load_spec("attack.toml", name, f"attack.name={attack}")
        for attack in ("random_scaling", "sign_flip")
        for name in ("fedavg", "fltrust", "br_drag", "cone_drag")
    }


def write_specs(folder: Path) -> None:
    """Copy the two experiment files into `folder`, to be edited and run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SPECS:
        (folder / name).write_bytes(files("dragfl.demo").joinpath(name).read_bytes())
