"""`dragfl check mymod:Part [key=value ...]`"""

from __future__ import annotations

import argparse

from dragfl.cli.options import add_safe_option

KINDS = ("aggregate", "correction", "server-step", "attack", "algorithm", "model", "partition", "dataset")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "check",
        help="run the property tests on a part of your own",
        description="Run the property tests of dragfl.testing on an aggregate, correction, server step, attack, "
        "algorithm, model, partition or dataset, and print what holds. Exit code 2: a contract is broken.",
    )
    command.add_argument("part", help="module:attr in the current folder or installed, or a chain nnm+module:attr")
    command.add_argument("words", nargs="*", default=[], metavar="key=value", help="a setting of the part, e.g. f=2")
    command.add_argument("--as", dest="kind", choices=KINDS, help="the kind of part, where it is not clear")
    command.add_argument("--shape", metavar="1,28,28", help="input shape for a model (default: some common ones)")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    add_safe_option(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import json
    import shutil
    import textwrap
    from dataclasses import asdict

    from dragfl.config.overrides import parse_override
    from dragfl.testing.parts import findings, kind_of

    settings = {".".join(path): value for path, value in map(parse_override, args.words)}
    kind = args.kind.replace("-", " ") if args.kind else kind_of(args.part)
    found = findings(args.part, kind, settings, _shape(args.shape))
    broken = sum(finding.failed for finding in found)
    if args.json:
        rows = [asdict(finding) for finding in found]
        print(json.dumps({"part": args.part, "kind": kind, "passed": not broken, "findings": rows}))
        return 2 if broken else 0
    width = max(len(finding.name) for finding in found)
    letters = max(80, shutil.get_terminal_size().columns) - width - 10
    print(f"{args.part}: {kind}")
    for finding in found:
        word = {True: "ok", False: "FAIL", None: "-"}[finding.holds]
        if not finding.required:
            word = {True: "yes", False: "no", None: "-"}[finding.holds]
        text = textwrap.shorten(finding.text, letters, placeholder=" ...") if finding.holds else finding.text
        print(f"  {word:<4}  {finding.name:<{width}}  {text}")
    required = sum(finding.required for finding in found)
    print(f"{required - broken} of {required} contracts hold; yes and no are information")
    return 2 if broken else 0


def _shape(text: str | None) -> tuple[int, ...] | None:
    from dragfl.errors import SpecError

    if text is None:
        return None
    words = text.replace("x", ",").split(",")
    if not all(word.strip().isdigit() and int(word) for word in words):
        raise SpecError(f"--shape: {text!r}; give positive numbers with commas, such as 1,28,28")
    return tuple(int(word) for word in words)
