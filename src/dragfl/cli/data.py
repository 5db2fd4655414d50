"""`dragfl data list|get|show`"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragfl.data.dataset import Dataset
    from dragfl.data.partitions import ClientSplit

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
    action.set_defaults(run=show_dataset)


def list_datasets(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from dragfl.data import DATASETS
    from dragfl.data.cache import find_local

    found = {
        name: {"about": about, "where": find_local(name) or f"not on this machine: dragfl data get {name}"}
        for name, about in DATASETS.items()
    }
    if args.json:
        print(json.dumps(found))
        return 0
    table = Table(header_style="bold")
    for heading in ("dataset", "description", "location"):
        table.add_column(heading)
    for name, facts in found.items():
        table.add_row(name, facts["about"], facts["where"])
    table.add_row("npz:PATH", "a file with the arrays x, y, test_x, test_y", "")
    table.add_row("idx:FOLDER", "a folder with four idx files", "")
    Console().print(table)
    return 0


def get_datasets(args: argparse.Namespace) -> int:
    from dragfl import data
    from dragfl.data.cache import find_local

    for name in args.names:
        with DownloadProgress(quiet=args.quiet) as progress:
            dataset = data.load(name, progress)
        if not args.quiet:
            parts = f"{len(dataset.y):,} + {len(dataset.test_y):,} of {'x'.join(map(str, dataset.shape))}"
            where = f"verified, {find_local(name)}" if name in data.DATASETS else "read"
            print(f"{name}: {parts}, {dataset.classes} classes; {where}")
    return 0


class DownloadProgress:
    """Called as progress(what, done, total): a bar on a terminal, one line per download in a pipe."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        self.quiet, self.live, self.tasks = quiet, not quiet and sys.stderr.isatty(), dict[str, Any]()
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), disable=not self.live, transient=True)

    def __enter__(self) -> DownloadProgress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self.tasks:
            self.tasks[what] = self.bar.add_task(what, total=total or None)
            if not self.quiet and not self.live:
                print(f"{what} ...", file=sys.stderr, flush=True)
        self.bar.update(self.tasks[what], completed=done, total=total or None)


def show_dataset(args: argparse.Namespace) -> int:
    from dragfl.data.partitions import summarize_split

    with DownloadProgress(quiet=args.json) as progress:
        dataset, split, title = (
            _load_spec(args, progress) if args.what.endswith(".toml") else _load_dataset(args, progress)
        )
    facts = summarize_split(split, dataset.y.cpu().numpy(), dataset.classes)
    if args.json:
        print(json.dumps({"dataset": dataset.name, "split": title, **vars(facts)}))
    else:
        _print_tables(dataset, split, title)
    if not args.no_figures:
        for path in _write_figures(args, dataset, split, title):
            print(f"wrote {path}", file=sys.stderr)
    return 0


def _load_spec(args: argparse.Namespace, progress: DownloadProgress) -> tuple[Dataset, ClientSplit, str]:
    """The dataset and split of a run of this spec; the root data are removed as in a run."""
    from dragfl.build import load_dataset, partition_data
    from dragfl.config.spec import load

    experiment = load(Path(args.what))
    args.seed = experiment.seed
    dataset = load_dataset(experiment.dataset, progress)
    split, _ = partition_data(experiment, dataset)
    return dataset, split, _describe(experiment.partition)


def _load_dataset(args: argparse.Namespace, progress: DownloadProgress) -> tuple[Dataset, ClientSplit, str]:
    from dragfl import data
    from dragfl.config.registry import build
    from dragfl.data.partitions import PARTITIONS, partition_dataset
    from dragfl.rng import rng

    partition = build("--partition", parse_partition(args.partition), PARTITIONS, ("__call__",), key="kind")
    dataset = data.load(args.what, progress)
    split = partition_dataset(dataset, partition, args.clients, rng(args.seed, "partition"))
    return dataset, split, _describe(partition)


def parse_partition(text: str) -> dict[str, Any]:
    """Parse `dirichlet_class,a=0.1`, `kind=dirichlet_class,a=0.1` or the TOML table of a spec.

    >>> parse_partition("dirichlet_class,a=0.1")
    {'kind': 'dirichlet_class', 'a': 0.1}
    """
    import tomllib

    table: dict[str, Any] = {}
    for part in text.strip().removeprefix("{").removesuffix("}").split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            key, value = "kind", key
        try:
            table[key] = tomllib.loads(f"value = {'0' * value.startswith('.')}{value}")["value"]
        except tomllib.TOMLDecodeError:
            table[key] = value
    return table


def _describe(partition: Any) -> str:
    """`dirichlet_class(a=0.1)`: the kind and the settings that differ from their default."""
    import dataclasses

    from dragfl.config.registry import describe
    from dragfl.data.partitions import PARTITIONS

    table = describe(partition, PARTITIONS, key="kind")
    known = dataclasses.fields(partition) if dataclasses.is_dataclass(partition) else ()
    default = {field.name: field.default for field in known}
    given = {k: v for k, v in table.items() if k != "kind" and (k not in default or v != default[k])}
    settings = ", ".join(f"{name}={value}" for name, value in given.items())
    return f"{table['kind']}({settings})" if settings else str(table["kind"])


def _print_tables(dataset: Dataset, split: ClientSplit, title: str) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from dragfl.data.partitions import label_counts, summarize_split

    labels = dataset.y.cpu().numpy()
    facts = summarize_split(split, labels, dataset.classes)
    names = dataset.class_names or tuple(str(label) for label in range(dataset.classes))
    shown = range(min(split.clients, MAX_ROWS))
    counts = label_counts(split, labels, dataset.classes, shown)
    table = Table(title=f"{dataset.name}, {title}", title_justify="left", title_style="bold", header_style="bold")
    for heading in ("client", "samples", "classes"):
        table.add_column(heading, justify="right")
    table.add_column("largest classes")
    for client, row in zip(shown, counts, strict=True):
        most = [label for label in np.argsort(-row, kind="stable")[:4] if row[label]]
        words = ", ".join(f"{names[label]} {row[label] / row.sum():.0%}" for label in most)
        table.add_row(str(client), f"{row.sum():,}", str((row > 0).sum()), words)
    console = Console()
    console.print(table)
    if split.clients > MAX_ROWS:
        console.print(f"... and {split.clients - MAX_ROWS:,} more clients")
    console.print(
        f"{facts.clients:,} clients, {facts.samples:,} samples; sizes {facts.size_min:,} / {facts.size_median:,.10g} / "
        f"{facts.size_max:,} and classes {facts.classes_min} / {facts.classes_median:g} / {facts.classes_max} "
        f"(minimum / median / maximum); mean total-variation distance to the global labels {facts.total_variation:.3f}",
        highlight=False,
    )


def _write_figures(args: argparse.Namespace, dataset: Dataset, split: ClientSplit, title: str) -> list[Path]:
    from dragfl.data import plots
    from dragfl.rng import rng

    plots.require_matplotlib()
    args.out.mkdir(parents=True, exist_ok=True)
    suffix = "".join(c if c.isalnum() or c in "._-" else "-" for c in title.replace("=", "").replace(", ", "-"))
    labels = args.out / f"data-{dataset.name}-{suffix.strip('-')}.png"
    headline = f"{dataset.name}, {title}, {split.clients:,} clients"
    plots.plot_label_distribution(dataset, split, headline).savefig(labels, dpi=150)
    if len(dataset.shape) != 3:
        return [labels]
    samples = args.out / f"data-{dataset.name}-samples.png"
    plots.plot_samples(dataset, rng(args.seed, "contact sheet")).savefig(samples, dpi=150)
    return [labels, samples]
