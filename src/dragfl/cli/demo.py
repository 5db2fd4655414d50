"""`dragfl demo`: client drift and Byzantine attacks on the built-in digits dataset, in under a minute."""

from __future__ import annotations

import argparse
import shutil
from contextlib import suppress
from pathlib import Path

from dragfl.errors import Diverged, SpecError

TITLES = {
    "drift": "Client drift: 20 clients, each with one or two digits, no attack",
    "random_scaling": "Random scaling: 6 of 20 clients send p times their update, p ~ N(0, 3)",
    "sign_flip": "Sign flip: 6 of 20 clients send the negated update",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "demo",
        help="a first example: client drift and attacks, in under a minute",
        description="Run FedAvg and DRAG on label-sorted digits, then FedAvg, FLTrust, BR-DRAG and Cone DRAG "
        "with 6 of 20 malicious clients. Writes the runs, a report and the two experiment files.",
    )
    command.add_argument("--out", type=Path, default=Path("demo"), help="output folder (default: demo)")
    command.add_argument("--rounds", type=int, help="rounds of each run, for a faster demo")
    command.add_argument("--quiet", action="store_true", help="print only the path of the report")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    import dragfl
    from dragfl import demo, report
    from dragfl.cli.interrupt import catch_interrupts
    from dragfl.cli.output import print_report
    from dragfl.cli.progress import RunProgress

    experiments = demo.load_experiments(args.rounds)
    folder = args.out / "runs"
    _delete_previous_demo(args.out)
    progress = RunProgress(quiet=args.quiet)
    with catch_interrupts() as should_stop, progress.bar:
        for name, experiment in experiments.items():
            progress.begin(name, experiment.rounds)
            with suppress(Diverged):  # the table shows it
                dragfl.run(experiment, folder / name, on_record=progress, should_stop=should_stop)
    demo.write_specs(args.out)
    if not args.quiet:
        console = Console()
        for prefix, title in TITLES.items():
            rows = report.summarize_runs(sorted(folder.glob(f"{prefix}-*")))
            (table,) = report.rich_tables(rows, console.width)
            table.title, table.title_justify, table.caption = title, "left", None
            console.print(table)
        console.print(
            "One seed per run. > N: the target was not reached in N rounds. Bytes: one run, all clients together. "
            f"Edit {args.out}/drift.toml or attack.toml and run it with `dragfl run`."
        )
    title = "dragfl demo: client drift and attacks on label-sorted digits"
    return print_report(lambda: report.write_report([folder], args.out, title=title))


def _delete_previous_demo(out: Path) -> None:
    """The demo starts from the beginning each time; it deletes only runs of an earlier demo."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / "drift.toml").exists() and not (out / "runs" / "drift-fedavg").exists():
        raise SpecError(f"{out}: exists and was not written by `dragfl demo`; choose another --out")
    shutil.rmtree(out / "runs", ignore_errors=True)
