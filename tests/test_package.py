"""The package as a whole: public names, light import, no pickle, no prints, package data, no machine paths."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

import dragfl
from tests.conftest import python

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "dragfl").rglob("*.py"))


def test_every_public_name_exists() -> None:
    for name in dragfl.__all__:
        assert getattr(dragfl, name) is not None
    assert sorted(dir(dragfl)) == sorted(dragfl.__all__)
    assert list(dragfl.__all__) == sorted(dragfl.__all__)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'dragfl' has no attribute 'drago'"):
        _ = dragfl.drago


def test_importing_dragfl_does_not_import_torch(tmp_path: Path) -> None:
    heavy = ("torch", "matplotlib", "pandas", "scipy", "rich", "safetensors")
    code = f"import sys, dragfl; print([name for name in {heavy} if name in sys.modules])"
    assert python(code, tmp_path) == "[]\n"


def test_every_module_imports(tmp_path: Path) -> None:
    """Every package and top-level module as the first import, then all other modules, in one fresh interpreter.

    Files import each other without cycles (tests/test_architecture.py), so no other order can fail.
    """
    names = [
        str(path.relative_to(ROOT / "src").with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for path in SOURCES
        if path.name != "__main__.py"
    ]
    code = (
        "import sys, importlib\n"
        f"names, first = {names!r}, lambda name: name.count('.') < 2\n"
        "for name in filter(first, names):\n"
        "    for old in [m for m in sys.modules if m.split('.')[0] == 'dragfl']: del sys.modules[old]\n"
        "    importlib.import_module(name)\n"
        "for name in names: importlib.import_module(name)\n"
        "print('imported')"
    )
    assert python(code, tmp_path) == "imported\n"


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def console_prints(tree: ast.AST) -> Iterator[int]:
    """Lines that print to the terminal, and not to an open file or pipe."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            to = next((ast.unparse(word.value) for word in node.keywords if word.arg == "file"), "sys.stdout")
            if to in ("sys.stdout", "sys.stderr", "None"):
                yield node.lineno


UNSAFE_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {"eval", "exec", "torch.load", "torch.save", "np.load", "os.system", "compile", "__import__"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_a_source_file_has_a_docstring_and_no_unsafe_call(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not [found for found in imports(tree) if found[1].split(".")[0] in UNSAFE_IMPORTS]
    unsafe = [found for found in calls(tree) if found[1] in UNSAFE_CALLS]
    text = path.read_text().splitlines()
    assert not [at for at, name in unsafe if not (name == "np.load" and "allow_pickle=False" in text[at - 1])]
    if "cli" not in path.parts:
        assert not list(console_prints(tree)), "only the command line prints"
    assert ast.get_docstring(tree), "every file has a docstring"


def test_no_text_names_a_path_outside_the_repository() -> None:
    texts = [*SOURCES, ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*")]
    for path in texts:
        if path.is_file() and path.suffix in {".py", ".md", ".toml"}:
            for word in ("../shared", "/work/"):
                assert word not in path.read_text(), f"{path} names {word}"


def test_no_text_installs_dragfl_from_an_index() -> None:
    """It is not on PyPI. `pip install 'dragfl[EXTRA]'` is right where dragfl is installed: pip adds the extra."""
    for path in ROOT.rglob("*"):
        skipped = path.relative_to(ROOT).parts[0] in (".venv", "tests")
        if not skipped and path.suffix in {".py", ".md", ".toml", ".ipynb"}:
            assert not re.search(r"pip install[^\n`]* '?dragfl(?!\[)\b", path.read_text()), path


def test_the_package_data_exist() -> None:
    package = files("dragfl")
    assert package.joinpath("py.typed").is_file()
    assert package.joinpath("data/sources/digits.npz").is_file()
    for name in ("drift.toml", "attack.toml"):
        assert package.joinpath("demo", name).is_file()


def test_the_installed_version_is_the_declared_one_and_heads_the_changelog() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert dragfl.__version__ == declared, "the installed version is another: run `make lint`, which installs again"
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == declared
