"""`dragfl reproduce [FIGURE ...] [--seeds N] [--quick]`"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.cli.options import number_of_jobs

if TYPE_CHECKING:
    from rich.table import Table

    from dragfl.reproduction.rows import Row
    from dragfl.reproduction.runs import FigurePlan, FigureRequest, Planner

RUNS, QUICK_RUNS = Path("reproduction-runs"), Path("reproduction-runs-quick")
OUT, QUICK_OUT = Path("reproduction"), Path("reproduction-quick")
NOT_TO_SET = {
    "seed": "use --seeds",
    "name": "runs are named after their settings",
    "data": "use data.dataset=NAME, data.partition.kind=NAME",
}
STYLES = {"PASS": "green", "MIXED": "cyan", "FAIL": "red", "UNDECIDED": "yellow", "NOT RUN": "dim"}
SOURCES = {"paper": "claims of the paper", "ours": "claims beyond the paper"}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "reproduce",
        help="reproduce the figures of the DRAG paper and judge its claims",
        description="Executes the missing runs of the named figures (default: all), plots them and prints a verdict "
        "for every claim that needs them. Figures share runs; an interrupted command continues where it stopped.",
    )
    command.add_argument(
        "words", nargs="*", default=[], metavar="FIGURE", help="such as fig3a fig7, or key=value; see --list"
    )
    command.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N-1 (default: set by each figure)")
    command.add_argument("--rounds", type=int, metavar="N", help="rounds of every run (default: set by each figure)")
    command.add_argument("--quick", action="store_true", help="reduced settings for a smoke test; not evidence")
    command.add_argument(
        "--until-decided", action="store_true", help="shorter runs for curves that can no longer change a verdict"
    )
    command.add_argument("--list", action="store_true", help="list the figures with time estimates, then stop")
    command.add_argument("--dry-run", action="store_true", help="list the missing runs, then stop")
    command.add_argument("--judge", action="store_true", help="run nothing; plots and verdicts of the finished runs")
    runs, out = f"{RUNS}, with --quick {QUICK_RUNS}", f"{OUT}, with --quick {QUICK_OUT}"
    command.add_argument("--runs", type=Path, metavar="DIR", help=f"folder of the run directories (default: {runs})")
    command.add_argument("--out", type=Path, help=f"folder for plots, summaries and verdicts (default: {out})")
    command.add_argument("--jobs", type=int, metavar="N", help="runs in parallel (default: one a core)")
    command.add_argument("--quiet", action="store_true", help="print only verdicts and errors")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.errors import SpecError
    from dragfl.reproduction.racing import plan_until_decided
    from dragfl.reproduction.runs import missing_runs, plan_figure

    folder = args.runs or (QUICK_RUNS if args.quick else RUNS)
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"--runs: {folder} is not a folder; choose another")
    requests = _parse_requests(args)
    plan = plan_until_decided if args.until_decided else plan_figure
    plans = [plan(request, folder) for request in requests]
    if args.list:
        _print_figures(plans, args)
        return 0
    if args.dry_run:
        for planned in missing_runs(plans):
            print(planned.folder)
        if later := [p for each in plans for p in each.later]:
            print(f"and {len(later)} runs that depend on these")
        return 0
    if not args.judge:
        _execute(requests, plan, folder, args)
    _print_results(requests, plan, folder, args)
    return 0


def _parse_requests(args: argparse.Namespace) -> list[FigureRequest]:
    """The requested figures with their datasets; figures without available data are reported and left out."""
    from dragfl.cli.data import download_progress
    from dragfl.config.overrides import parse_override
    from dragfl.errors import DataError, SpecError
    from dragfl.reproduction.datasets import select_dataset
    from dragfl.reproduction.figure import figure_names, load_figure
    from dragfl.reproduction.runs import FigureRequest

    changes = [word for word in args.words if "=" in word]
    names = [word for word in args.words if "=" not in word] or figure_names()
    if args.seeds is not None and not 1 <= args.seeds <= 100:
        raise SpecError(f"--seeds: {args.seeds}; use a number from 1 to 100")
    if args.rounds is not None:
        changes.append(f"rounds={args.rounds}")
    values = {".".join(path): value for path, value in map(parse_override, changes)}
    for key, advice in NOT_TO_SET.items():
        if key in values:
            raise SpecError(f"reproduce: {key} cannot be set here; {advice}")
    requested = values.get("data.dataset")
    if requested is not None and not isinstance(requested, str):
        raise SpecError(f"data.dataset: {requested!r} is not the name of a dataset; see `dragfl data list`")
    requests, skipped, failures = [], dict[str, list[str]](), dict[str, str]()
    download = not (args.list or args.dry_run or args.judge)
    with download_progress(quiet=args.quiet) as progress:
        for figure in map(load_figure, dict.fromkeys(names)):
            try:
                dataset = select_dataset(
                    figure, failures, quick=args.quick, requested=requested, download=download, progress=progress
                )
            except DataError as error:
                skipped.setdefault(str(error), []).append(figure.name)
                continue
            seeds = args.seeds or (1 if args.quick else figure.seeds)
            requests.append(FigureRequest(figure, dataset, tuple(range(seeds)), args.quick, tuple(changes)))
    for reason, figures in skipped.items():
        print(f"skipped, data not available: {', '.join(figures)}\n  {reason}")
    if not requests:
        raise DataError("reproduce: no figure has its data available; see the reasons above and `dragfl data`")
    return requests


def _print_figures(plans: Sequence[FigurePlan], args: argparse.Namespace) -> None:
    from dragfl.reproduction.run_time import RunTimes, format_duration
    from dragfl.reproduction.runs import missing_runs, unique_runs

    for plan in plans:
        figure, later = plan.request.figure, plan.later
        missing = missing_runs([plan]) + later
        count = len(unique_runs(plan.planned)) + len(later)
        seconds = RunTimes(plan.planned).remaining(missing) / number_of_jobs(args, inf)
        time = format_duration(seconds) if missing else "finished"
        rounds = max(p.experiment.rounds for p in plan.planned)
        print(f"{figure.name:16} {figure.title}")
        print(
            f"{'':16} {figure.topic}; {plan.request.dataset}, at most {rounds} rounds, {count} runs, "
            f"{len(missing)} missing: {time}"
        )


def _execute(requests: Sequence[FigureRequest], plan: Planner, folder: Path, args: argparse.Namespace) -> None:
    from dragfl.cli.interrupt import catch_interrupts
    from dragfl.cli.progress import SweepProgress
    from dragfl.reproduction.run_time import format_duration
    from dragfl.reproduction.runs import missing_runs, run_figures

    plans = [plan(request, folder) for request in requests]
    missing = missing_runs(plans)
    jobs = min(number_of_jobs(args, inf), max(1, len(missing)))
    progress = SweepProgress([p for each in plans for p in each.planned], jobs, quiet=args.quiet)
    progress.plan(missing, [p for each in plans for p in each.later])
    if not args.quiet:
        about = f"about {format_duration(progress.remaining_seconds())} with {jobs} in parallel if none stops early"
        print(f"{progress.total} runs are missing; {about}" if progress.total else "all runs are finished", flush=True)
    with catch_interrupts() as should_stop, progress.bar:
        run_figures(requests, folder, progress.callbacks(should_stop), plan=plan, on_plan=progress.plan, jobs=jobs)


def _print_results(requests: Sequence[FigureRequest], plan: Planner, folder: Path, args: argparse.Namespace) -> None:
    """Write summaries, plots and verdicts of the finished runs, and print their tables."""
    from rich.console import Console

    from dragfl.cli.text_table import print_table
    from dragfl.errors import SpecError
    from dragfl.report.figures.files import FIGURES
    from dragfl.reproduction import results

    names = [request.figure.name for request in requests]
    out = args.out or (QUICK_OUT if args.quick else OUT)
    summaries = results.write_summaries(requests, folder, out, plan)
    used = [summaries[name] for name in names if name in summaries]
    console = Console()
    if not args.quiet:
        for summary in used:
            title = next(f"{r.figure.name}: {r.figure.title}" for r in requests if r.figure.name == summary.figure)
            header, *lines = results.curve_table(summary)
            print_table(console, title, header, lines)
        for note in results.scope_notes(used):
            console.print(note, markup=False, highlight=False)
    verdicts = results.verdict_rows(summaries, names)
    if verdicts:
        console.print(_verdict_table(verdicts))
        for source, title in SOURCES.items():
            if rows := [row for row in verdicts if row.source == source]:
                console.print(f"{title}: {results.count_verdicts(rows)}", markup=False, highlight=False)
    else:
        print("no claim needs these figures")
    results.write_verdicts(results.verdict_rows(summaries), out)
    try:
        plots = results.plot_figures(summaries, names, out)
    except SpecError as error:  # matplotlib is not installed; summaries and verdicts are complete
        print(f"no plots: {error}")
        return
    if not args.quiet:
        print(f"{len(plots)} plots in {out / FIGURES}, summaries and verdicts in {out}")


def _verdict_table(rows: Sequence[Row]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_lines=True)
    table.add_column("claim", max_width=12)
    table.add_column("statement", ratio=3)
    table.add_column("measured: median (interval)", ratio=4)
    table.add_column("verdict", no_wrap=True)
    table.add_column("remark", ratio=3)
    for row in rows:
        missing = f"To decide it: {row.missing}" if row.missing else ""
        table.add_row(
            f"{row.claim}\n{row.section or row.source}",
            Text(row.text),
            Text("\n".join(row.measured) or "—"),
            Text(row.verdict, style=STYLES[row.verdict]),
            Text("\n".join(text for text in (row.remark, missing) if text)),
        )
    return table
