"""Code of the user: import it by name, read its parameters, and name it in the errors it causes."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from dragfl.errors import DragflError, NotFinite, PartError, SpecError, UnsafeSpec, nearest
from dragfl.lazy import Tensor, torch

PLAIN = (bool, int, float, str, list, tuple, dict)  # values that a spec can hold
OBJECT = "object:"  # before the name of a Python object that a spec cannot name
_imported: dict[int, tuple[str, Any]] = {}  # id -> (name, object): what a spec has named, which may be an instance
_refused: ContextVar[bool] = ContextVar("refuse_own_code", default=False)


@contextmanager
def refuse_own_code(refuse: bool = True) -> Iterator[None]:
    """Within this block `import_object` raises instead of importing; False changes nothing."""
    token = _refused.set(refuse or _refused.get())
    try:
        yield
    finally:
        _refused.reset(token)


def refuses_own_code() -> bool:
    """Whether this is inside of `refuse_own_code`."""
    return _refused.get()


def check_imports_allowed(where: str, target: str) -> None:
    """Raise if the user's code must not be imported here."""
    if _refused.get():
        raise UnsafeSpec(
            f"{where}: '{target}' names code outside dragfl, which is not imported in safe mode; use a built-in name, "
            "or read that code first and run without --safe (in Python: safe=False)"
        )


def import_object(where: str, target: str) -> Any:
    """Import `module:attr` from an installed module or the current folder; refused within `refuse_own_code`."""
    check_imports_allowed(where, target)
    if target.startswith(OBJECT):
        raise SpecError(
            f"{where}: '{target}' marks a Python object that a spec cannot name, so this spec cannot be repeated "
            "from its file; give the object again from Python, or define it at the top level of a module that can be "
            "imported and write module:attr"
        )
    module_name, _, attr = target.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:  # ValueError: the name is empty
        missing = getattr(error, "name", module_name)
        if missing != module_name.split(".")[0] and missing != module_name:
            problem = f"'{module_name}' imports a module that is not installed: {error}"
            raise SpecError(f"{where}: {problem}; install it or correct the name") from None
        dotted = module_name.removesuffix(".py").replace("/", ".")
        advice = f"it must be installed or in the folder {here}" if dotted == module_name else f"write {dotted}:{attr}"
        raise SpecError(f"{where}: cannot import '{module_name}' ({error}); {advice}") from None
    except (Exception, SystemExit) as error:  # the module is the user's own code
        failure = one_line(error)
        raise SpecError(f"{where}: importing '{module_name}' failed with {failure}; fix that module first") from error
    finally:
        sys.path.remove(here)
    try:
        found = getattr(module, attr)
    except AttributeError:
        if module_name == "__main__":
            raise SpecError(
                f"{where}: '{target}' is defined in a script or notebook that is not running here; run it from there, "
                "or define it in a module that can be imported and write module:attr"
            ) from None
        public = [name for name in vars(module) if not name.startswith("_")]
        raise SpecError(f"{where}: module '{module_name}' has no '{attr}'{nearest(attr, public)}") from None
    _imported[id(found)] = (target, found)
    return found


def is_function(value: object) -> bool:
    """Whether a value is a plain function (or another callable), neither a class nor a part with methods."""
    return callable(value) and not isinstance(value, type) and not hasattr(value, "init")


def is_own(part: object) -> bool:
    """Whether the class of a part, or of a part of a chain, is the user's own."""
    return not type(part).__module__.startswith("dragfl.") or any(map(is_own, getattr(part, "chain", ())))


def name_of(part: object) -> str:
    """`module:name` of a function or class, or of the class of an object; the names in a chain."""
    if hasattr(part, "described"):
        return str(part.described()[0])
    if isinstance(links := getattr(part, "chain", None), tuple):
        return "+".join(str(getattr(link, "name", None) or name_of(link)) for link in links)
    kind: Any = part if hasattr(part, "__qualname__") else type(part)
    return f"{kind.__module__}:{kind.__qualname__}"


def spec_name(found: Any, known: str = "") -> str:
    """The `module:attr` that gives this very object again, else `object:NAME`; `known`: where it was found."""
    imported = _imported.get(id(found), ("", None))
    names = [known, name_of(found) if hasattr(found, "__qualname__") else "", imported[0]]
    for module, _, attr in (name.partition(":") for name in names if name):
        if getattr(sys.modules.get(module), attr, None) is found:
            return f"{module}:{attr}"
    return f"{OBJECT}{name_of(found).rpartition(':')[2].rpartition('.')[2]}"


def parameters_of(where: str, function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function or class by name."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        reason = "has no parameters that can be read; wrap it in a function of your own"
        raise SpecError(f"{where}: {name_of(function)} {reason}") from None


def settings_of(
    where: str, function: Any, inputs: Collection[str], given: Mapping[str, Any], form: str
) -> dict[str, Any]:
    """The settings of a function: its parameters other than the inputs, from the table or from their defaults.

    `form` says what a function of this kind looks like, for the error about a parameter without a value.
    """
    known = {name: p for name, p in parameters_of(where, function).items() if name not in inputs}
    others = {name: p for name, p in known.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    for key in given:
        if key not in others and not any(p.kind == p.VAR_KEYWORD for p in known.values()):
            raise SpecError(f"{where}.{key}: {name_of(function)} has no setting '{key}'{nearest(key, others)}")
    for name, p in others.items():
        if p.default is p.empty and name not in given:
            raise SpecError(f"{where}: {name_of(function)} needs a value of '{name}'; {form}; give {name} = ...")
    defaults = {name: p.default for name, p in others.items() if isinstance(p.default, PLAIN)}
    return defaults | dict(given)


def as_annotated(function: Any, name: str, value: Any) -> Any:
    """A numpy array of a tensor where the parameter is annotated as an array, else the tensor itself."""
    array = "ndarray" in str(parameters_of("function", function)[name].annotation).lower()
    return value.detach().cpu().numpy() if array else value


@contextmanager
def named_errors(name: str, *, only_own: bool = False) -> Iterator[None]:
    """Report an exception of the user's code as a `PartError` with the name of the part and the line.

    `only_own`: leave an exception as it is if none of the user's lines took part in it.
    """
    try:
        yield
    except DragflError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the call of the part
        frame = _own_frame([Path(f.filename) for f in frames])
        if only_own and frame is None:
            raise
        advice = "; check the parameters it takes"
        if frame is not None:
            advice = f" ({Path(frames[frame].filename).name}:{frames[frame].lineno}); fix that line"
        raise PartError(f"{name} raised {one_line(error)}{advice}") from error


def own_traceback(error: BaseException) -> str:
    """The traceback behind an error, from the first line of the user's code on; empty if that has not raised it."""
    cause = error.__cause__
    if cause is not None and not isinstance(cause, DragflError):
        frames = traceback.extract_tb(cause.__traceback__)
        while frames and not _is_own_file(Path(frames[0].filename)):
            frames.pop(0)
        if frames or isinstance(cause, SyntaxError):
            lines = [*traceback.format_list(frames), *traceback.format_exception_only(cause)]
            return "".join(["Traceback of your code (most recent call last):\n", *lines]).rstrip("\n")
    notes = getattr(cause or error, "__notes__", ())  # of an exception in a worker process
    return "\n".join(notes).rstrip("\n") if isinstance(error, PartError) else ""


def _own_frame(files: list[Path]) -> int | None:
    """The last frame of the user's own files; else the first one of an installed package other than torch and numpy."""
    installed = [i for i, file in enumerate(files) if not _is_library(file)]
    own = [i for i in installed if _is_own_file(files[i])]
    return own[-1] if own else installed[0] if installed else None


def _is_own_file(file: Path) -> bool:
    return "site-packages" not in file.parts and not _is_library(file)


def _is_library(file: Path) -> bool:
    if "site-packages" in file.parts:
        after = len(file.parts) - file.parts[::-1].index("site-packages")
        return file.parts[after] in ("dragfl", "torch", "numpy")
    return str(file).startswith("<frozen") or any(file.is_relative_to(folder) for folder in _LIBRARIES)


_LIBRARIES = (Path(__file__).parent, Path(inspect.__file__).parent)


def one_line(error: BaseException) -> str:
    """The type and the message of an exception in one line."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def checked_tensor(what: str, value: Any, shape: tuple[int, ...], device: Any = None, *, finite: bool = True) -> Tensor:
    """A tensor or numpy array that own code returned, as a (finite) float32 tensor of this shape."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        value = torch.from_numpy(np.array(value, dtype=np.float32))
    if not isinstance(value, torch.Tensor) or value.is_complex():
        kind = value.dtype if isinstance(value, np.ndarray | torch.Tensor) else type(value).__name__
        raise PartError(f"{what} is a {kind}; return a tensor or numpy array of shape {shape}")
    if tuple(value.shape) != shape:
        raise PartError(f"{what} has shape {tuple(value.shape)}; return shape {shape}")
    checked: Tensor = value.detach().to_dense().to(device=device, dtype=torch.float32)
    if finite:
        check_finite(what, checked)
    return checked


def check_finite(what: str, value: Tensor) -> None:
    """Raise if a tensor holds a NaN or an infinity; its sum alone is read where that is finite."""
    if bool(torch.isfinite(value.sum())) or bool((finite := torch.isfinite(value)).all()):
        return
    bad = int((~finite).sum())
    raise NotFinite(f"{what} is not finite: {bad} of {value.numel()} numbers are NaN or infinite; check its arithmetic")
