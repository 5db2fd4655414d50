"""`dragfl theory SPEC [key=value ...]`"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.cli.options import add_quiet_option, add_safe_option
from dragfl.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Console

    from dragfl.config.spec import Experiment
    from dragfl.runs.directory import Run
    from dragfl.theory.assessment import Assessment
    from dragfl.theory.constants import Progress

CURVE = "drag"  # of a figure of the paper
SYMBOLS = {"smoothness": "L", "noise": "sigma_L", "heterogeneity": "sigma_G"}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "theory",
        help="whether Theorem 1 of the DRAG paper covers a spec or a run, and its bound",
        description="Repeat the first rounds of a spec, measure the constants of Theorem 1 on its data and model, and "
        "print whether the theorem covers it, by how much not, and what to change. For a covered run the bound is "
        "printed next to the measured gradient norms. Writes theory.json and figures; `dragfl report` shows them.",
    )
    command.add_argument(
        "spec",
        metavar="SPEC|RUN",
        help="a TOML file, a finished run directory, or a figure of the paper, such as fig3a",
    )
    command.add_argument(
        "words", nargs="*", default=[], metavar="key=value", help="override a setting, e.g. algorithm.c=0.01"
    )
    command.add_argument(
        "--rounds", type=int, metavar="N", help="rounds to repeat (default: about ten seconds of training)"
    )
    command.add_argument("--models", type=int, default=5, metavar="N", help="models that are measured (default: 5)")
    command.add_argument(
        "--out", type=Path, help="folder of theory.json and the figures (default: theory; for a run its directory)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    add_quiet_option(command)
    add_safe_option(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.config.locate import located
    from dragfl.runs.loop import create_folder
    from dragfl.theory.assessment import assess

    _check_counts(args)
    source, folder = _find(args)
    create_folder(folder)
    with located(args.spec if args.spec.endswith(".toml") else None, args.words), _progress(args) as progress:
        found = assess(source, rounds=args.rounds, models=args.models, progress=progress)
    values = found.values()
    files = _write(folder, found.name, values)
    if args.json:
        print(json.dumps(values | {"files": files}, allow_nan=False))
    elif not args.quiet:
        _print(found, values)
        for path in files:
            print(f"wrote {path}")
    return 0


def _check_counts(args: argparse.Namespace) -> None:
    if args.rounds is not None and args.rounds < 0:
        raise SpecError(f"--rounds: {args.rounds}; give 0 for the first model only, or more")
    if args.models < 1:
        raise SpecError(f"--models: {args.models}; give at least 1")


def _find(args: argparse.Namespace) -> tuple[Experiment | Run, Path]:
    """(the experiment or the run, the output folder)."""
    from dragfl.config.spec import load
    from dragfl.reproduction.figure import figure_names
    from dragfl.runs.directory import load_run

    path, out = Path(args.spec), args.out or Path("theory")
    if path.is_dir():
        if args.words:
            raise SpecError(f"{args.words[0]}: a run cannot be changed; give its spec: {path / 'spec.toml'}")
        return load_run(path), args.out or path
    if not path.exists() and args.spec in figure_names():
        return _figure_experiment(args.spec, tuple(args.words)), out
    return load(path, *args.words), out


def _figure_experiment(name: str, changes: tuple[str, ...]) -> Experiment:
    """The DRAG curve of a figure of the paper, with seed 0."""
    from dragfl.reproduction.datasets import select_dataset
    from dragfl.reproduction.figure import load_figure
    from dragfl.reproduction.runs import FigureRequest, resolve_run

    figure = load_figure(name)
    if CURVE not in [curve.id for curve in figure.curves]:
        ids = ", ".join(curve.id for curve in figure.curves)
        raise SpecError(f"figure {name}: no curve '{CURVE}', only {ids}; give a TOML file instead")
    request = FigureRequest(figure, select_dataset(figure, {}), (0,), changes=changes)
    return replace(resolve_run(request, figure[CURVE].set, 0), name=name)


@contextmanager
def _progress(args: argparse.Namespace) -> Iterator[Progress]:
    """A bar on a terminal, a line in a pipe."""
    from rich.progress import TimeRemainingColumn

    from dragfl.cli.progress import progress_bar

    silent = args.quiet or args.json
    live = not silent and sys.stdout.isatty()
    if not silent and not live:
        print("repeating rounds and measuring ...", flush=True)
    with progress_bar(live, TimeRemainingColumn()) as bar:
        task = bar.add_task("measuring", total=None, state="")
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _write(folder: Path, name: str, values: dict[str, Any]) -> list[str]:
    """Write theory.json, and the figures where matplotlib is installed; returns the paths."""
    from dragfl.atomic import write_json
    from dragfl.report.figures.files import missing_packages
    from dragfl.runs.directory import THEORY, THEORY_FILES

    for old in THEORY_FILES:
        (folder / old).unlink(missing_ok=True)
    write_json(folder / THEORY, values)
    if not missing_packages("matplotlib"):
        from dragfl.report.figures.style import plot_style
        from dragfl.report.figures.theory import draw_bounds, draw_region

        with plot_style():
            for drawing in (draw_region([(name, values)]), draw_bounds([(name, values)])):
                if drawing is not None:
                    drawing.save(folder)
    return [str(folder / file) for file in THEORY_FILES if (folder / file).exists()]


def _print(found: Assessment, values: dict[str, Any]) -> None:
    from rich.console import Console

    from dragfl.cli.text_table import print_table

    console, s = Console(), found.setting
    title = (
        f"Theorem 1 and {found.name}: c = {s.c:g}, lr {s.lr:g}, {s.local_steps} local steps of {s.batch_size} samples"
    )
    print_table(console, title, ("condition", "here", "needed", "result"), found.conditions)
    spreads = found.measurement.spreads.items()
    rows = [(SYMBOLS[name], *(f"{value:.3g}" for value in spread)) for name, spread in spreads]
    gap = f"{found.measurement.constants.gap:.3g}"
    head = ("constant", "least", "median", "largest: used")
    print_table(console, "Measured constants", head, [*rows, ("f0 - f*", "", "", gap)], numbers=head[1:])
    _print_bound(console, found, values)
    for text in (f"Verdict: {found.verdict}.", *(f"To change: {text}." for text in found.changes), *found.notes):
        console.print(text, markup=False, highlight=False)


def _print_bound(console: Console, found: Assessment, values: dict[str, Any]) -> None:
    from dragfl.cli.text_table import print_table

    m, at_end = found.measurement, values["bound"]
    measured = f"squared gradient norm, mean of {m.rounds} rounds: {m.mean_squared_gradient:.3g} measured"
    if at_end is None:
        console.print(f"No bound: the theorem does not cover this run. S{measured[1:]}.\n", highlight=False)
        return
    vanishes = {"start": "with T", "drag": "only with c", "step": "with lr", "drift": "with lr^2", "total": ""}
    columns = dict.fromkeys([f"{m.rounds} rounds", f"{found.rounds} rounds"])
    bounds = (values["bound_measured"], at_end)[: len(columns)]
    rows = [(name, *(f"{part[name]:.3g}" for part in bounds), how) for name, how in vanishes.items()]
    print_table(
        console, f"Bound; {measured}", ("term", *columns, "vanishes"), [list(row) for row in rows], numbers=[*columns]
    )
