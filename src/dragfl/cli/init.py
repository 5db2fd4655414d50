"""`dragfl init [FILE]`"""

from __future__ import annotations

import argparse
from pathlib import Path

SCHEMA = "dragfl.schema.json"  # the name in the first line of the starter file


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "init",
        help="write a commented experiment file to start from",
        description=f"Write an experiment file with comments, and {SCHEMA} for editors next to it. No file is "
        "overwritten.",
    )
    command.add_argument("file", nargs="?", type=Path, default=Path("experiment.toml"), help="default: experiment.toml")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from importlib.resources import files

    from dragfl.cli.schema import schema_text
    from dragfl.config.tables import Top
    from dragfl.errors import SpecError

    file: Path = args.file
    if file.suffix != ".toml":
        raise SpecError(f"init: {file} does not end in .toml; give a file such as {file.name or 'experiment'}.toml")
    starter = files("dragfl.demo").joinpath("starter.toml").read_text()
    text = starter.format(file=file, name=Top(name=file.stem).name)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise SpecError(f"{file}: exists already; give another file name") from None
    except OSError as error:
        raise SpecError(f"{file}: cannot be written ({error.strerror}); give another path") from None
    schema = file.with_name(SCHEMA)
    if not schema.exists():
        schema.write_text(schema_text(), encoding="utf-8")
    print(f"wrote {file}; run it with: dragfl run {file}")
    return 0
