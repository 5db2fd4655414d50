"""`dragfl schema`"""

from __future__ import annotations

import argparse
import json


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "schema",
        help="print a JSON schema of experiment files, for editors",
        description="Print a JSON schema of experiment files. Editors that know TOML schemas complete and check keys "
        "in a file that begins with the line: #:schema ./dragfl.schema.json",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(schema_text(), end="")
    return 0


def schema_text() -> str:
    from dragfl.config.schema import experiment_schema

    return json.dumps(experiment_schema(), indent=1, ensure_ascii=False) + "\n"
