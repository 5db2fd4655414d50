"""From panels to run directories. A run is known by its resolved spec, not by its panel, so panels share runs.

PAPER_RUNS/emnist47-drag-1f2e3d4c-r1000-s0     dataset, algorithm, what it computes, rounds, seed
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dragfl.config.overrides import override, parse_override
from dragfl.config.spec import Experiment, resolve
from dragfl.errors import SpecError
from dragfl.reproduction.figure import TUNING_SEEDS, Curve, Panel
from dragfl.runs.directory import SPEC, Run, load_run
from dragfl.runs.sweep import PlannedRun

NOT_THE_RESULT = ("name", "seed", "rounds", "checkpoint", "state")  # they change no number, or stand in the name
ORDERS_SUMS = ("device", "block", "trainer")  # of [engine]: the others decide nothing but the time it takes


@dataclass(frozen=True)
class Scale:
    """How a panel is run: as the paper has it, or smaller, and then what was changed."""

    dataset: str
    seeds: tuple[int, ...]
    quick: bool = False
    changes: tuple[str, ...] = ()  # key=value, from the command line

    def words(self, panel: Panel) -> list[str]:
        """Every change to the panel's experiment, in the order in which they apply."""
        small = [*panel.quick.set, *panel.quick.datasets.get(self.dataset, [])] if self.quick else []
        return [f"data.dataset={self.dataset}", *small, *self.changes]


@dataclass(frozen=True)
class Panelled:
    """A run and the place it has in a panel; `candidate` is the value under trial in a run on a tuning seed."""

    curve: str
    seed: int
    planned: PlannedRun
    candidate: Any = None


@dataclass(frozen=True)
class Laid:
    """The runs of a panel at a scale; curves in `open` wait for the runs that tune them."""

    panel: Panel
    scale: Scale
    runs: list[Panelled]
    tuning: list[Panelled]
    tuned: Mapping[str, Any]  # curve -> the value chosen
    open: list[str]

    @property
    def planned(self) -> list[PlannedRun]:
        return [run.planned for run in [*self.tuning, *self.runs]]


def experiment(panel: Panel, scale: Scale, words: Sequence[str], seed: int) -> Experiment:
    """The experiment of one run, under the name that its settings give it."""
    tables = override(dict(panel.experiment), [*words, *scale.words(panel), f"seed={seed}"])
    try:
        made = resolve(tables)
    except SpecError as error:
        raise SpecError(f"panel {panel.name}: {error}") from None
    return replace(made, name=run_name(made))


def run_name(made: Experiment) -> str:
    """A name that says what the run is, and is the same for the same settings."""
    tables = {k: v for k, v in made.tables().items() if k not in NOT_THE_RESULT}
    tables["engine"] = {k: v for k, v in tables["engine"].items() if k in ORDERS_SUMS}
    key = blake2b(json.dumps(tables, sort_keys=True).encode(), digest_size=4).hexdigest()
    words = [str(made.dataset), made.algorithm.name.rsplit(":", 1)[-1]]
    slug = re.sub(r"[^A-Za-z0-9_+.-]+", "_", "-".join(words))[:60]
    return f"{slug}-{key}-r{made.rounds}-s{made.seed}"


def lay_out(panel: Panel, scale: Scale, folder: Path) -> Laid:
    """Every run of a panel, checked before anything starts; what a tuned curve is depends on what has been run."""
    runs: list[Panelled] = []
    tuning: list[Panelled] = []
    tuned: dict[str, Any] = {}
    waiting: list[str] = []

    def add(to: list[Panelled], curve: Curve, words: Sequence[str], seed: int, candidate: Any = None) -> None:
        made = experiment(panel, scale, [*curve.set, *words], seed)
        to.append(Panelled(curve.id, seed, PlannedRun(made.name, folder / made.name, made), candidate))

    for curve in panel.curve:
        words: list[str] = []
        if curve.tune is not None:
            if scale.quick:
                tuned[curve.id] = curve.tune.values[len(curve.tune.values) // 2]
            else:
                mine: list[Panelled] = []
                for value in curve.tune.values:
                    for seed in TUNING_SEEDS:
                        add(mine, curve, [_word(curve.tune.key, value)], seed, value)
                tuning += mine
                chosen = choose(mine)
                if chosen is None:
                    waiting.append(curve.id)
                    for value in curve.tune.values:  # a wrong key is an error now, not after the tuning
                        experiment(panel, scale, [*curve.set, _word(curve.tune.key, value)], 0)
                    continue
                tuned[curve.id] = chosen
            words = [_word(curve.tune.key, tuned[curve.id])]
        for seed in scale.seeds:
            if seed in TUNING_SEEDS:
                raise SpecError(f"paper: seed {seed} is one that controls are tuned on; judge on others")
            add(runs, curve, words, seed)
    return Laid(panel, scale, runs, tuning, tuned, waiting)


def choose(candidates: Sequence[Panelled]) -> Any:
    """The value that reaches the target first on the tuning seeds, then the most accurate; None until all have run.

    Where there is no target, the most accurate. A run that diverged is the last choice.
    """
    scores: dict[str, tuple[float, float]] = {}
    values = {repr(run.candidate): run.candidate for run in candidates}
    for name in values:
        reached, best = [], []
        for run in (c for c in candidates if repr(c.candidate) == name):
            done = finished(run.planned.folder)
            if done is None or done.result is None:
                return None
            failed = done.result["stopped_by"] == "diverged"
            target = run.planned.experiment.target_accuracy
            first = None if target is None or failed else done.rounds_to(target)
            reached.append(float("inf") if first is None else float(first))
            best.append(-1.0 if failed else float(done.result["best_accuracy"] or 0.0))
        scores[name] = (sum(reached), -sum(best))
    return values[min(scores, key=lambda name: scores[name])]


def finished(folder: Path) -> Run | None:
    """The run in a folder, if it has ended."""
    found = load_run(folder) if (folder / SPEC).is_file() else None
    return found if found is not None and found.finished else None


def unique(planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Each run once, in the order in which it first came."""
    return list({p.name: p for p in planned}.values())


def _word(key: str, value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    parse_override(f"{key}={text}")
    return f"{key}={text}"
