"""Digest of a Python object: its values, and the code that it can reach.

Followed: functions, methods, classes with their bases, decorators, default arguments, closures, and the global
functions, classes and constants that this code uses by name. The code of dragfl, of the standard library and of
installed packages counts by name only; their objects count with their state if they can be copied, else by type.
Docstrings, comments, line numbers and annotations do not count. A digest depends neither on memory addresses nor on the
order of sets, but bytecode depends on the version of Python.
"""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import dis
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

DIGEST_BYTES = 12
PLAIN = (type(None), type(...), type(NotImplemented), bool, int, float, complex, str, bytes)
WRAPPERS: dict[type, tuple[str, ...]] = {  # type -> the attributes that hold what it wraps
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.cached_property: ("func",),
    functools._lru_cache_wrapper: ("__wrapped__",),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    types.MethodType: ("__func__", "__self__"),
}
PROTOCOL = 4  # of `__reduce_ex__`, as in `copy`
MODULE_STATE = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE


@functools.cache
def is_own_module(module: Any) -> bool:
    """Whether a module is code of the user: not dragfl, the standard library or an installed package."""
    if module is None or module == "__main__":
        return True
    if not isinstance(module, str):  # of a type of an extension
        return False
    top = module.partition(".")[0]
    if top == "dragfl" or top in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(top), "__file__", None) or getattr(sys.modules.get(module), "__file__", None)
    return file is None or not {"site-packages", "dist-packages"} & set(Path(file).parts)


def hash_tensor(digest: blake2b, tensor: Tensor) -> None:
    """Add type, shape and raw bytes."""
    plain = tensor.detach().cpu().contiguous()
    digest.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)


class CodeDigest:
    """Add objects, then take the `hexdigest`; `modules` are those of the user that define these objects.

    `wrapped`: one of them is a `partial` or a bound method, whose name does not say what it computes.
    With `code=False` functions and classes count by name; with `weights=False` the parameters and buffers of a module
    count by name and shape.
    """

    def __init__(self, *, code: bool = True, weights: bool = True) -> None:
        self.modules: set[str] = set()
        self.wrapped = False
        self._code, self._weights = code, weights
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._seen: dict[int, tuple[int, Any]] = {}  # id -> (number, the object, so that its id is not used again)
        self._depth = 0  # > 0 inside of code, whose references are no objects of the experiment

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def _branch(self) -> CodeDigest:
        """An empty digest that knows the objects seen so far, for items without an order."""
        branch = CodeDigest(code=self._code, weights=self._weights)
        branch.modules, branch._seen, branch._depth = self.modules, dict(self._seen), self._depth
        return branch

    def add(self, value: Any) -> CodeDigest:
        kind = type(value)
        if kind in PLAIN:
            self._write(kind.__name__, repr(value))
        elif isinstance(value, Tensor):
            hash_tensor(self._hash, value)
        elif isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            self._write("array", str(value.dtype), str(value.shape))
            self._hash.update(value.tobytes())
        elif kind is tuple:
            self._sequence("tuple", value)
        elif isinstance(value, set | frozenset):
            self._sequence(kind.__name__, sorted(self._branch().add(item).hexdigest() for item in value))
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif kind in WRAPPERS:  # made at each access, so their ids say nothing
            self.wrapped |= self._depth == 0
            self._sequence(kind.__name__, [getattr(value, name) for name in WRAPPERS[kind]])
        elif id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)][0]))
        else:
            self._seen[id(value)] = (len(self._seen), value)
            self._add_new(value)
        return self

    def _add_new(self, value: Any) -> None:
        """An object of which the identity matters: it may refer to itself."""
        if isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif type(value) is list:
            self._sequence("list", value)
        elif type(value) in (dict, types.MappingProxyType):
            self._items("mapping", value)
        elif isinstance(value, types.ModuleType):
            self._write("module", value.__name__)
        elif isinstance(value, nn.Module):
            self._add_module(value)
        elif dataclasses.is_dataclass(value):
            self.add(type(value))
            self._items("fields", {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)})
        else:
            self._add_object(value)

    def _add_object(self, value: Any) -> None:
        """Class and state, as `copy.copy` takes them."""
        self.add(type(value))
        reduced = _reduce(value) if is_own_module(type(value).__module__) or _can_be_copied(value) else ""
        if isinstance(reduced, str):  # the name of a function, or nothing is known
            self._write(str(getattr(value, "__module__", "")), reduced)
            return
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if isinstance(state, dict):
            state = {k: v for k, v in state.items() if not _is_cache(getattr(type(value), str(k), None))}
        self._sequence("object", [make, arguments, state or None, list(items or ()), dict(pairs or ())])

    def _write(self, *words: str) -> None:
        for word in words:
            data = word.encode("utf-8", "surrogatepass")
            self._hash.update(f"{len(data)}:".encode() + data)

    def _sequence(self, kind: str, items: Iterable[Any]) -> None:
        listed = list(items)
        self._write(kind, str(len(listed)))
        for item in listed:
            self.add(item)

    def _items(self, kind: str, table: Mapping[Any, Any]) -> None:
        """In the order of the keys, or as it is where they are no words."""
        keys = sorted(table) if all(isinstance(key, str) for key in table) else list(table)
        self._write(kind, str(len(keys)))
        for key in keys:
            self.add(key)
            self.add(table[key])

    def _add_function(self, function: types.FunctionType) -> None:
        self._write("function", _qualified(function))
        if not self._code or not is_own_module(function.__module__):
            return
        self._define(function.__module__)
        self._depth += 1
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure = {name: cell.cell_contents for name, cell in cells if _is_set(cell)}
        self._sequence("function", [function.__code__, function.__defaults__, function.__kwdefaults__])
        self._items("closure", closure)
        self._items("attributes", vars(function))
        used = {name: function.__globals__[name] for name in _globals(function.__code__) & function.__globals__.keys()}
        self._items("globals", used)
        self._add_used(used, _names(function.__code__))
        self._depth -= 1

    def _add_used(self, found: Mapping[str, Any], names: set[str]) -> None:
        """What code with these names may use of the modules found: `helpers.scale(x)`, `package.helpers.scale(x)`."""
        for _, module in sorted(found.items()):
            if isinstance(module, types.ModuleType) and is_own_module(module.__name__):
                used = {name: vars(module)[name] for name in names & vars(module).keys()}
                self._items("module", used)
                self._add_used(used, names - used.keys())

    def _add_class(self, kind: type) -> None:
        self._write("class", _qualified(kind))
        if not self._code or not is_own_module(kind.__module__):
            return
        self._define(kind.__module__)
        self._depth += 1
        self._sequence("bases", [type(kind), *kind.__bases__])
        self._items("attributes", {name: value for name, value in vars(kind).items() if not _is_about(name, value)})
        self._depth -= 1

    def _add_code(self, code: types.CodeType) -> None:
        """The instructions with the names and constants they use, so that no position in a table counts."""
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & FLAGS)
        self._write("code", code.co_name, repr(shape), repr(code.co_varnames))
        self._hash.update(code.co_exceptiontable)
        instructions = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for step, following in itertools.zip_longest(instructions, instructions[1:]):
            if following is None or following.opname != "STORE_NAME" or not _is_about(following.argval, step.argval):
                self._write(step.opname)
                self.add(step.argval)

    def _add_module(self, module: nn.Module) -> None:
        """Class, settings, hooks, parameters, buffers and submodules."""
        self.add(type(module))
        own = is_own_module(type(module).__module__)
        for name, value in sorted(vars(module).items()):
            if name.endswith(("_hooks", "_hooks_with_kwargs")):
                self._sequence(name, value.values() if isinstance(value, Mapping) else [])
            elif name not in MODULE_STATE and (own or not name.startswith("_")):
                self._items("setting", {name: value})
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            self._write("tensor", name)
            if tensor is None or self._weights:
                self.add(tensor)
            else:
                first = self._seen.setdefault(id(tensor), (len(self._seen), tensor))[0]  # shared weights
                self._write(str(first), f"{tensor.dtype}{tuple(tensor.shape)}{tensor.requires_grad}")
        self._sequence("submodules", [part for item in module._modules.items() for part in item])

    def _define(self, module: str | None) -> None:
        if self._depth == 0 and module is not None:
            self.modules.add(module)


def _qualified(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"


def _is_about(name: str, value: Any) -> bool:
    """Whether an attribute of a class describes it, such as `__doc__`, and does not change what it computes."""
    return name.startswith("__") and (name.startswith("__annotat") or not (callable(value) or type(value) in WRAPPERS))


def _is_cache(attribute: Any) -> bool:
    return isinstance(attribute, functools.cached_property)


def _reduce(value: Any) -> Any:
    """How an object is made and its state; "" if it does not say."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        return reduce(value) if reduce else value.__reduce_ex__(PROTOCOL)
    except Exception:  # of a lock or a file, for example
        return ""


def _can_be_copied(value: Any) -> bool:
    """If not, its state may well be about a screen, a file or a connection."""
    try:
        return copy.deepcopy(value) is not None
    except Exception:
        return False


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None or True
    except ValueError:  # of a variable without a value yet
        return False


def _all_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and that of its nested functions and classes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_code(constant)


def _names(code: types.CodeType) -> set[str]:
    """The names of globals and attributes."""
    return {name for part in _all_code(code) for name in part.co_names}


def _globals(code: types.CodeType) -> set[str]:
    return {
        step.argval
        for part in _all_code(code)
        for step in dis.get_instructions(part)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    }
