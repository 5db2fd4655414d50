"""Modules of the user's own: those beside the spec travel in the app, the others are named in the README."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragfl.errors import SpecError
from dragfl.flower import deploy
from dragfl.flower.app_files import packed_files
from dragfl.flower.deploy.own_modules import named_modules

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that flwr imports

RULE = "from {helper} import scale\n\n\ndef rule(updates):\n    return scale(updates.mean(0))\n"
SPEC = '[clients]\ntotal = 2\n[algorithm]\nname = "{module}:rule"\n[model]\nname = "logistic"\n'


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("deployed_rule", "deployed_helper", "deployed_package", "test_deployed"):
            del sys.modules[name]


def _write(folder: Path, module: str = "deployed_rule") -> Path:
    (folder / "deployed_helper.py").write_text("def scale(x):\n    return x\n")
    (folder / f"{module}.py").write_text(RULE.format(helper="deployed_helper"))
    (folder / "unrelated.py").write_text("")
    (folder / "spec.toml").write_text(SPEC.format(module=module))
    return folder / "spec.toml"


def test_names_are_found_in_keys_values_and_chains() -> None:
    tables = {
        "data": {"dataset": "text:play.txt", "partition": {"kind": "my.parts:split"}},
        "algorithms": {"own:rule": {"name": "own:rule"}},
        "algorithm": {"aggregate": ["nnm+chained:rule", 3], "note": "http://x/y"},
    }
    assert named_modules(tables) == {"my", "own", "chained"}


def test_modules_beside_the_spec_and_what_they_import_are_packed(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    folder = deploy.init(tmp_path / "d", _write(tmp_path / "work"))
    assert {"deployed_rule.py", "deployed_helper.py"} <= packed_files(folder / "app")
    assert not (folder / "app" / "unrelated.py").exists()
    assert "your modules deployed_helper, deployed_rule" in (folder / "README.md").read_text()
    sys.modules.pop("deployed_rule"), sys.modules.pop("deployed_helper")
    found = {finding.name: finding.status for finding in deploy.check(folder)}
    assert (found["spec"], found["app"]) == ("ok", "ok")
    assert Path(str(sys.modules["deployed_rule"].__file__)).parent == folder / "app"


def test_a_package_is_copied_whole(tmp_path: Path) -> None:
    package = tmp_path / "deployed_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("from deployed_package.inner.rules import rule\n")
    (package / "inner" / "__init__.py").touch()
    (package / "inner" / "rules.py").write_text("def rule(updates):\n    return updates.mean(0)\n")
    (tmp_path / "spec.toml").write_text(SPEC.format(module="deployed_package"))
    folder = deploy.init(tmp_path / "d", tmp_path / "spec.toml")
    assert "deployed_package/inner/rules.py" in packed_files(folder / "app")


def test_a_module_that_flower_leaves_out_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"test_deployed\.py: not sent to the nodes.*rename it"):
        deploy.init(tmp_path / "d", _write(tmp_path, "test_deployed"))
    assert not (tmp_path / "d").exists()


def test_an_installed_module_is_named_in_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    _write(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "spec.toml").write_text(SPEC.format(module="deployed_rule"))
    folder = deploy.init(tmp_path / "d", tmp_path / "spec.toml")
    assert "Install your modules on the server and on every node: deployed_rule." in (folder / "README.md").read_text()
    assert not (folder / "app" / "deployed_rule.py").exists()


def test_a_module_that_cannot_be_found_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.format(module="nowhere_at_all"))
    with pytest.raises(SpecError, match="cannot import 'nowhere_at_all'"):
        deploy.init(tmp_path / "d", tmp_path / "spec.toml")
