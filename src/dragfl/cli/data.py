"""`dragfl data list|get|show|play`"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.cli.options import add_safe_option
from dragfl.errors import DataError, SpecError

if TYPE_CHECKING:
    from dragfl.data.dataset import Dataset
    from dragfl.data.download import Progress
    from dragfl.data.partitions import ClientSplit, Summary

MAX_ROWS = 20  # clients in the table


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("data", help="list, download and show datasets and their partitions")
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)

    action = actions.add_parser("list", help="list the datasets and their location on this machine")
    action.add_argument("--json", action="store_true", help="print one JSON object")
    action.set_defaults(run=list_datasets)

    action = actions.add_parser("get", help="download, verify and decode datasets into the cache")
    action.add_argument("names", nargs="+", metavar="DATASET", help="for example cifar10")
    action.add_argument("--quiet", action="store_true", help="print nothing but errors")
    action.set_defaults(run=get_datasets)

    action = actions.add_parser(
        "show",
        help="show a table and figures of a dataset and its partition",
        description="Print the label distribution of the clients and draw it, with a figure of samples.",
    )
    action.add_argument("what", metavar="SPEC.toml|DATASET", help="a spec, or a dataset with the options below")
    action.add_argument(
        "--partition", default="iid", metavar="KIND[,key=value...]", help="for example dirichlet_class,a=0.1"
    )
    action.add_argument("--clients", type=int, default=10, metavar="M", help="default: 10")
    action.add_argument("--seed", type=int, default=0, help="default: 0")
    action.add_argument("--out", type=Path, default=Path("figures"), metavar="DIR", help="default: figures")
    action.add_argument("--no-figures", action="store_true", help="print the table only")
    action.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    add_safe_option(action)
    action.set_defaults(run=show_dataset)

    action = actions.add_parser("play", help="write a generated play, an example for the dataset text:PATH")
    action.add_argument("--out", type=Path, default=Path("play.txt"), metavar="FILE", help="default: play.txt")
    action.add_argument("--speakers", type=int, default=20, metavar="N", help="default: 20")
    action.add_argument("--speeches", type=int, default=30, metavar="N", help="of a speaker on average; default: 30")
    action.add_argument("--seed", type=int, default=0, help="default: 0, the text of the dataset `play`")
    action.set_defaults(run=write_play)


def list_datasets(args: argparse.Namespace) -> int:
    from rich.console import Console

    from dragfl.cli.text_table import print_table
    from dragfl.data import DATASETS
    from dragfl.data.cache import find_local

    found = {
        name: {"about": about, "where": find_local(name) or f"not on this machine: dragfl data get {name}"}
        for name, about in DATASETS.items()
    }
    if args.json:
        print(json.dumps(found))
        return 0
    rows = [
        *((name, facts["about"], facts["where"]) for name, facts in found.items()),
        ("npz:PATH", "a file with the arrays x, y, test_x, test_y", ""),
        ("idx:FOLDER", "a folder with four idx files", ""),
        ("text:PATH", "a text file, split by speaker or chapter", ""),
    ]
    print_table(
        Console(highlight=False), "datasets", ("dataset", "description", "location"), rows, drop=["description"]
    )
    return 0


def get_datasets(args: argparse.Namespace) -> int:
    from dragfl import data
    from dragfl.data.cache import find_local

    for name in args.names:
        with download_progress(quiet=args.quiet) as progress:
            dataset = data.load(name, progress)
        if not args.quiet:
            parts = f"{len(dataset.y):,} + {len(dataset.test_y):,} of {'x'.join(map(str, dataset.shape))}"
            where = f"verified, {find_local(name)}" if name in data.DATASETS else "read"
            print(f"{name}: {parts}, {dataset.classes} classes; {where}")
    return 0


@contextmanager
def download_progress(*, quiet: bool) -> Iterator[Progress]:
    """Report progress(what, done, total) as a bar on a terminal, as one line per download in a pipe."""
    from rich import progress as rich
    from rich.console import Console

    live, tasks = not quiet and sys.stderr.isatty(), dict[str, rich.TaskID]()
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.DownloadColumn())
    console = Console(stderr=True)
    with rich.Progress(*columns, rich.TimeRemainingColumn(), console=console, disable=not live, transient=True) as bar:

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total or None)
                if not quiet and not live:
                    print(f"{what} ...", file=sys.stderr, flush=True)
            bar.update(tasks[what], completed=done, total=total or None)

        yield report


def show_dataset(args: argparse.Namespace) -> int:
    from dragfl.build import load_dataset, partition_data
    from dragfl.config.locate import located
    from dragfl.config.spec import load
    from dragfl.data.partitions import summarize_split

    if args.what.endswith(".toml"):
        experiment = load(Path(args.what))
    else:
        data = {"dataset": args.what, "partition": parse_partition(args.partition)}
        experiment = load({"seed": args.seed, "rounds": 1, "data": data, "clients": {"total": args.clients}})
    with download_progress(quiet=args.json) as progress:
        dataset = load_dataset(experiment.dataset, progress)
    with located(args.what if args.what.endswith(".toml") else None):
        split, *_ = partition_data(experiment, dataset)  # without root and validation data, as in a run
    title = describe_partition(experiment.partition)
    facts = summarize_split(split, dataset.y.cpu().numpy(), dataset.classes)
    if args.json:
        print(json.dumps({"dataset": dataset.name, "split": title, **vars(facts)}))
    else:
        _print_tables(dataset, split, facts, title)
    if not args.no_figures:
        _write_figures(args.out, dataset, split, title, experiment.seed)
    return 0


def write_play(args: argparse.Namespace) -> int:
    from dragfl.data.sources.play import generate_play

    text = generate_play(args.speakers, args.speeches, args.seed)
    try:
        with args.out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(f"{args.out}: the file exists; give another one with --out") from None
    except OSError as error:
        raise DataError(f"{args.out}: cannot be written ({error.strerror})") from None
    print(f"wrote {args.out}: {len(text):,} characters; show it with: dragfl data show text:{args.out}")
    return 0


def parse_partition(text: str) -> dict[str, Any]:
    """Parse `dirichlet_class,a=0.1`, `kind=dirichlet_class,a=0.1` or the TOML table of a spec.

    >>> parse_partition("dirichlet_class,a=0.1")
    {'kind': 'dirichlet_class', 'a': 0.1}
    """
    from dragfl.config.overrides import parse_override

    words = text.strip().removeprefix("{").removesuffix("}").replace("=.", "=0.").split(",")
    pairs = [parse_override(word if "=" in word else f"kind={word}") for word in words]
    return {path[0]: value for path, value in pairs}


def describe_partition(partition: Any) -> str:
    """`dirichlet_class(a=0.1)`: the kind and the settings that differ from their default."""
    import dataclasses

    from dragfl.config.registry import describe
    from dragfl.data.partitions import PARTITIONS

    table = describe(partition, PARTITIONS, key="kind")
    fields = dataclasses.fields(partition) if dataclasses.is_dataclass(partition) else ()
    default = {"kind": table["kind"], **{field.name: field.default for field in fields}}
    settings = ", ".join(f"{name}={value}" for name, value in table.items() if value != default.get(name))
    return f"{table['kind']}({settings})" if settings else str(table["kind"])


def _print_tables(dataset: Dataset, split: ClientSplit, facts: Summary, title: str) -> None:
    import numpy as np
    from rich.console import Console

    from dragfl.cli.text_table import NO_BREAK, print_table
    from dragfl.data.partitions import label_counts

    shown = range(min(split.clients, MAX_ROWS))
    counts = label_counts(split, dataset.y.cpu().numpy(), dataset.classes, shown)
    numbers, texts = ("client", "samples", "classes"), ["largest classes", *(["groups"] if dataset.group_names else [])]
    rows = []
    for client, row in zip(shown, counts, strict=True):
        most = [label for label in np.argsort(-row, kind="stable")[:4] if row[label]]
        words = ", ".join(f"{dataset.class_name(label)}{NO_BREAK}{row[label] / row.sum():.0%}" for label in most)
        names = [_group_names(dataset, split, client)] if dataset.group_names else []
        rows.append((str(client), f"{row.sum():,}", str((row > 0).sum()), words, *names))
    console = Console()
    print_table(console, f"{dataset.name}, {title}", [*numbers, *texts], rows, drop=texts[::-1], numbers=numbers)
    if split.clients > MAX_ROWS:
        console.print(f"... and {split.clients - MAX_ROWS:,} more clients")
    console.print(
        f"{facts.clients:,} clients, {facts.samples:,} samples; sizes {facts.size_min:,} / {facts.size_median:,.10g} / "
        f"{facts.size_max:,} and classes {facts.classes_min} / {facts.classes_median:g} / {facts.classes_max} "
        f"(minimum / median / maximum); mean total-variation distance to the global labels {facts.total_variation:.3f}",
        highlight=False,
    )


def _group_names(dataset: Dataset, split: ClientSplit, client: int) -> str:
    """The first groups of a client and the number of the others."""
    import numpy as np

    assert dataset.groups is not None
    held = np.unique(dataset.groups.cpu().numpy()[split.samples_of(client)]).tolist()
    more = [f"{len(held) - 3} more"] if len(held) > 3 else []
    return ", ".join([*(dataset.group_names[group] for group in held[:3]), *more])


def _write_figures(out: Path, dataset: Dataset, split: ClientSplit, title: str, seed: int) -> None:
    from dragfl.data import plots
    from dragfl.rng import rng
    from dragfl.runs.loop import create_folder

    plots.require_matplotlib()
    create_folder(out)
    suffix = "".join(c if c.isalnum() or c in "._-" else "-" for c in title.replace("=", "").replace(", ", "-"))
    headline = f"{dataset.name}, {title}, {split.clients:,} clients"
    figures = {suffix.strip("-"): plots.plot_label_distribution(dataset, split, headline)}
    if len(dataset.shape) == 3:
        figures["samples"] = plots.plot_samples(dataset, rng(seed, "contact sheet"))
    for name, figure in figures.items():
        path = out / f"data-{dataset.name}-{name}.png"
        figure.savefig(path, dpi=150)
        print(f"wrote {path}", file=sys.stderr)
