"""The distributions that would be published: what they contain, what they declare, and that an installed wheel runs."""

from __future__ import annotations

import email
import email.message
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import TIMEOUT_S, python

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytest.importorskip("hatchling", reason="hatchling, the build backend, is not installed: pip install '.[dev]'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built by the backend in this environment, without network."""
    out = tmp_path_factory.mktemp("dist")
    python(f"from hatchling import build; build.build_wheel({str(out)!r}); build.build_sdist({str(out)!r})", ROOT)
    return out


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    return folder / f"dragfl-{PROJECT['version']}-py3-none-any.whl"


def declared(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_string(archive.read(f"dragfl-{PROJECT['version']}.dist-info/METADATA").decode())


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    here = {path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {str(path.relative_to(ROOT / "src")) for path in here}


@pytest.mark.parametrize(
    "name",
    [
        "py.typed",
        "data/sources/digits.npz",
        "demo/drift.toml",
        "reproduction/claims.toml",
        "reproduction/figures/fig3a.toml",
        "report/page.html.j2",
        "flower/deploy/templates/nginx.conf",
    ],
)
def test_the_wheel_has_the_data_of_the_package(wheel: Path, name: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(f"dragfl/{name}") == (ROOT / "src" / "dragfl" / name).read_bytes()


def test_the_wheel_declares_what_the_project_does(wheel: Path) -> None:
    metadata = declared(wheel)
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_the_sdist_has_all_that_the_readme_links_to_and_can_be_tested(folder: Path) -> None:
    with tarfile.open(folder / f"dragfl-{PROJECT['version']}.tar.gz") as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    links = re.findall(r"\]\(([^)\s#]+)", (ROOT / "README.md").read_text())
    local = {link for link in links if not re.match(r"\w+:", link)}
    assert "docs/figures/readme.png" in local
    missing = {link for link in local if not any(name == link or name.startswith(f"{link}/") for name in packed)}
    assert not missing
    assert packed >= {"pyproject.toml", "constraints.txt", "Makefile", "tests/test_wheel.py", "CITATION.cff"}


def test_the_readme_of_the_distributions_can_be_rendered(folder: Path) -> None:
    pytest.importorskip("twine", reason="twine is not installed: pip install twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, folder.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_an_installed_wheel_runs_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """In a new environment, which takes torch and the other packages from this one."""
    made, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    venv.create(made, with_pip=True)
    commands = made / "bin"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(made)}))
    (site / "others.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))

    def run(*command: str) -> str:
        done = subprocess.run(
            [str(commands / command[0]), *command[1:]],
            cwd=empty,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={"PATH": str(commands), "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    assert run("python", "-c", "import dragfl; print(dragfl.__file__)").strip() == str(site / "dragfl" / "__init__.py")
    assert run("dragfl", "--version") == f"dragfl {PROJECT['version']}\n"
    assert "sorted_shards" in run("dragfl", "list")
    run("dragfl", "demo", "--rounds", "2")
    assert (empty / "demo" / "report.html").is_file()
    assert "fig3a" in run("dragfl", "reproduce", "--list")
