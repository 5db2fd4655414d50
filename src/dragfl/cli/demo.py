"""`dragfl demo`: the main job on the embedded digits, in under a minute."""

from __future__ import annotations

import argparse
import shutil
from contextlib import suppress
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "demo",
        help="see it work: client drift and an attacked federation on embedded data, in under a minute",
        description="FedAvg against DRAG on label-sorted digits, then FedAvg, FLTrust and BR-DRAG with six of twenty "
        "clients attacking. Writes the runs, a report and the two experiment files.",
    )
    command.add_argument("--out", type=Path, default=Path("demo"), help="where to write (default: demo)")
    command.add_argument("--rounds", type=int, help="fewer rounds, for a quicker look")
    command.add_argument("--quiet", action="store_true", help="print nothing but the path of the report")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    import dragfl
    from dragfl import demo, report
    from dragfl.cli.interrupt import polite_interrupt
    from dragfl.cli.progress import Watch
    from dragfl.errors import Diverged, SpecError

    experiments = demo.experiments(args.rounds)
    folder = args.out / "runs"
    _make_room(args.out, SpecError)
    with polite_interrupt() as should_stop, Watch(quiet=args.quiet) as watch:
        for experiment in experiments:
            watch.begin(experiment.name, experiment.rounds)
            with suppress(Diverged):  # an outcome like any other, told by the table
                dragfl.run(experiment, folder / experiment.name, on_record=watch, should_stop=should_stop)
    demo.write_specs(args.out)
    console = Console()
    for title, names in (
        ("Client drift: 20 clients, each with one or two digits, nobody attacks", "drift-*"),
        ("Random scaling: 6 of 20 clients send p times their update, p ~ N(0, 3)", "random_scaling-*"),
        ("Sign flip: 6 of 20 clients send their update reversed", "sign_flip-*"),
    ):
        if not args.quiet:
            table = report.rich_table(report.table(sorted(folder.glob(names))))
            table.title, table.title_justify = title, "left"
            console.print(table)
    if not args.quiet:
        console.print(f"One seed each. Change {args.out}/drift.toml or attack.toml and `dragfl run` it.")
    try:
        page = report.write([folder], args.out, title="dragfl demo: drift and attacks on label-sorted digits")
    except SpecError as error:  # no plotting library: the runs and the table are there all the same
        print(f"no figures: {error}")
        return 0
    print(f"report: {page}")
    return 0


def _make_room(out: Path, error: type[Exception]) -> None:
    """The demo starts anew each time; it only ever deletes what an earlier demo made."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / "drift.toml").exists() and not (out / "runs" / "drift-fedavg").exists():
        raise error(f"{out}: exists and was not made by `dragfl demo`; choose another --out")
    shutil.rmtree(out / "runs", ignore_errors=True)
