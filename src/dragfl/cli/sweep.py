"""`dragfl sweep EXPERIMENT.toml key=a,b,... [key=c,d,...] [--tune key=a,b,...]`"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.cli.options import add_sweep_options, number_of_jobs

if TYPE_CHECKING:
    from rich.console import Console

    from dragfl.runs.directory import Run
    from dragfl.runs.tuning import Score
    from dragfl.runs.tuning_plan import Tuned


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "sweep",
        help="run a grid of experiments and compare them",
        description="Run every combination of the given values, each in its own run directory, then write a report. "
        "Commas outside brackets and quotes separate values. The same command continues an interrupted sweep. With "
        "--tune, each combination first selects its best value of a key by runs on a validation split.",
    )
    command.add_argument("experiment", type=Path, help="a TOML file")
    command.add_argument(
        "words",
        nargs="*",
        default=[],
        metavar="key=a,b",
        help="a key and its values, e.g. algorithm.name=fedavg,drag seed=0,1,2",
    )
    command.add_argument(
        "--tune",
        action="append",
        default=[],
        metavar="key=a,b",
        help="a key and the values to select from, e.g. algorithm.server_lr=1,2,4; may be given for several keys",
    )
    command.add_argument(
        "--best-by",
        default="validation_accuracy",
        metavar="METRIC",
        help="validation_accuracy (default), validation_loss, or rounds (to the target, on the validation split)",
    )
    add_sweep_options(command, default_out="sweeps/NAME-KEYS, by what varies")
    command.add_argument(
        "--json",
        action="store_true",
        help="print the summary, the tuned values and paths as one JSON object, nothing else",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.cli.output import print_plan
    from dragfl.config.spec import read
    from dragfl.errors import SpecError
    from dragfl.runs.sweep_plan import parse_grid, plan_sweep, sweep_folder
    from dragfl.runs.tuning_plan import final_seeds, plan_tuning

    tables = read(args.experiment)
    grid, tune = parse_grid(args.words), parse_grid(args.tune)
    if not grid and not tune:
        raise SpecError("sweep: no key=a,b and no --tune; give at least one, for example seed=0,1,2")
    out = args.out or sweep_folder(args.experiment, tables, grid, tune)
    tuning = plan_tuning(args.experiment, grid, tune, out, best_by=args.best_by) if tune else []
    planned = [p for part in tuning for p in part.planned] or plan_sweep(args.experiment, grid, out)
    if args.dry_run:
        return print_plan(planned, len(tuning) * len(final_seeds(tables, grid)), as_json=args.json)

    from dragfl.cli.interrupt import catch_interrupts
    from dragfl.cli.progress import SweepProgress
    from dragfl.runs.sweep import run_planned, run_tuned

    jobs = number_of_jobs(args, len(planned))
    progress = SweepProgress(planned, jobs, quiet=args.quiet or args.json)
    tuned: list[Tuned] = []
    with catch_interrupts() as should_stop, progress.bar:
        callbacks = progress.callbacks(should_stop)
        if tune:
            tuned, runs = run_tuned(
                args.experiment,
                grid,
                tune,
                out,
                callbacks,
                jobs=jobs,
                best_by=args.best_by,
                fresh=args.fresh,
                on_plan=progress.plan,
                log=args.log,
            )
        else:
            runs = run_planned(planned, callbacks, jobs=jobs, fresh=args.fresh, log=args.log)
    return _print_json(args, out, tuned, runs) if args.json else _print_results(args, out, tuned, runs)


def _print_results(args: argparse.Namespace, out: Path, tuned: Sequence[Tuned], runs: list[Run]) -> int:
    """The scores of tuning, the table of the runs, and the path of the report."""
    from rich.console import Console

    from dragfl import report
    from dragfl.cli.output import print_report
    from dragfl.cli.report import print_summary

    for part in tuned:
        if not args.quiet:
            _print_scores(Console(), part, args.best_by)
        for message in part.warnings:
            print(f"warning: {message}")
    summary = report.read_summary(runs)
    if not args.quiet:
        print_summary(summary)
    earlier = _earlier_runs(runs)
    if earlier and not args.quiet:
        print(f"the report has {len(earlier)} more runs, of earlier sweeps into this folder")
    shown = report.read_summary([*runs, *earlier]) if earlier else summary
    return print_report(lambda: report.write_report(shown, out), quiet=args.quiet)


def _earlier_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs of other sweeps into the same folder: the report of a folder has all of them."""
    from dragfl.report import find_runs
    from dragfl.runs.directory import FINAL, find_run

    folder, now = runs[0].path.parent, {run.path for run in runs}
    if folder.name == FINAL:
        found = find_runs(folder)  # without those of candidates that were not selected
    else:
        found = [run for path in sorted(folder.iterdir()) if (run := find_run(path)) is not None]
    return [run for run in found if run.path not in now]


def _print_json(args: argparse.Namespace, out: Path, tuned: Sequence[Tuned], runs: list[Run]) -> int:
    """One JSON object: the rows of the table, the tuned values, and the paths of runs and files."""
    from dragfl import report
    from dragfl.report.export import plain
    from dragfl.report.figures.files import missing_packages
    from dragfl.runs.directory import TUNING_TABLE

    summary = report.read_summary(runs)
    files = {"tuning": str(out / TUNING_TABLE)} if tuned else {}
    if not missing_packages("matplotlib", "jinja2"):
        earlier = _earlier_runs(runs)
        shown = report.read_summary([*runs, *earlier]) if earlier else summary
        files["report"] = str(report.write_report(shown, out))
    values = summary.values() | {
        "out": str(out),
        "runs": [str(run.path) for run in runs],
        "tuning": {"best_by": args.best_by, "tuned": [part.table() for part in tuned]} if tuned else None,
        "warnings": [message for part in tuned for message in part.warnings],
        "files": files,
    }
    print(json.dumps(plain(values), allow_nan=False))
    return 0


def _print_scores(console: Console, tuned: Tuned, best_by: str) -> None:
    """The scores of all candidates of one combination, on each tuning seed."""
    from dragfl.cli.text_table import print_table
    from dragfl.runs.tuning import TUNING_SEEDS

    where = ", ".join(f"{key}={value}" for key, value in tuned.combination.items())
    rows = [
        [
            *map(str, candidate.values()),
            *_format_scores(scores, best_by),
            "selected" if candidate is tuned.selected else "",
        ]
        for candidate, scores in zip(tuned.candidates, tuned.scores, strict=True)
    ]
    head = [*tuned.selected, *(f"seed {seed}" for seed in TUNING_SEEDS), ""]
    print_table(console, f"tuning by {best_by}{': ' if where else ''}{where}", head, rows)


def _format_scores(scores: Sequence[Score], best_by: str) -> list[str]:
    texts = []
    for score in scores:
        if score.best is None:
            texts.append("diverged")
        elif best_by == "rounds":
            texts.append("not reached" if score.rounds is None else str(score.rounds))
        else:
            texts.append(f"{score.best:.4f}")
    return texts
