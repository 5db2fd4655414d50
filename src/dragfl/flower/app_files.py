"""The Flower app of a spec: a folder that `flwr build` and `flwr run` accept.

    pyproject.toml               name, components, and the defaults of the run config
    dragfl_app/server_app.py     app = server_app("spec.toml")
    dragfl_app/client_app.py     app = client_app("spec.toml")
    dragfl_app/spec.toml         the experiment

Flower sends the folder to every node as one archive of at most 10 MB. Of its files only `.py`, `.toml`, `.md`, `.yaml`
and `.json` are sent, and none that is named like a test. The root of the archive is on the nodes' import path.
"""

from __future__ import annotations

import io
import re
import zipfile
from importlib.metadata import version
from pathlib import Path

import tomli_w

from dragfl.errors import SpecError

PACKAGE = "dragfl_app"  # not the name of the spec: a package called `torch` would hide torch
_MODULE = '''"""The {what} of this app: dragfl's own, for the spec in this folder."""

from pathlib import Path

from dragfl.flower import {make}

app = {make}(Path(__file__).parent / "spec.toml")
'''


def write_app(folder: Path, spec_toml: str, name: str, *, run_dir: str = "") -> None:
    """Write the app of a spec, given as TOML text, into a folder.

    `run_dir` is the default of `run-dir` in the run config: the absolute path of the run directory on the server.
    """
    package = folder / PACKAGE
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(_project(name, run_dir)))
    (package / "__init__.py").write_text('"""A Flower app that runs a dragfl spec."""\n')
    (package / "server_app.py").write_text(_MODULE.format(what="server", make="server_app"))
    (package / "client_app.py").write_text(_MODULE.format(what="client", make="client_app"))
    (package / "spec.toml").write_text(spec_toml)


def packed_files(folder: Path) -> set[str]:
    """The files that Flower packs into the archive of an app; `SpecError` if it refuses the app."""
    from flwr.cli.build import build_fab_from_disk

    try:
        archive = build_fab_from_disk(folder)
    except ValueError as error:
        raise SpecError(f"{folder}: Flower cannot pack this app: {' '.join(str(error).split())}") from None
    with zipfile.ZipFile(io.BytesIO(archive)) as fab:
        return set(fab.namelist())


def app_name(name: str) -> str:
    """The name of a spec as Flower allows it: letters, digits and hyphens, a letter first, at most 32 characters."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    return (plain if plain[:1].isalpha() else f"run-{plain}")[:32].strip("-")


def _project(name: str, run_dir: str) -> dict[str, object]:
    modules = {"serverapp": f"{PACKAGE}.server_app:app", "clientapp": f"{PACKAGE}.client_app:app"}
    return {
        "project": {
            "name": app_name(name),
            "version": "1.0.0",
            "description": f"{name}: a federation of dragfl {version('dragfl')}",
            "license": "LicenseRef-unpublished",  # without one, every `flwr run` prints a warning
            "dependencies": [f"dragfl[flower]>={version('dragfl')}"],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "dragfl",
                    "components": modules,
                    "config": {"run-dir": run_dir, "overrides": "", "log": ""},
                }
            },
        },
    }
