"""Digest of a Python object: its values, and the code that it can reach.

Followed: functions, methods, classes with their bases, decorators, default arguments, closures, and the global
functions, classes and constants that this code uses by name. The code of dragfl, of the standard library and of
installed packages counts by name only. Docstrings, comments, line numbers and annotations do not count. A digest
depends neither on memory addresses nor on the order of sets, but bytecode depends on the version of Python.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import itertools
import re
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
CONTENTS: tuple[Any, ...] = (tuple, list, dict, frozenset, set, bool, int, float, complex, str, bytes)
DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
NOT_CODE = {  # attributes of a class that do not change what it computes, or repeat other attributes
    *("__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__", "__annotate_func__"),
    *("__annotations_cache__", "__dataclass_fields__", "__dataclass_params__", "__abstractmethods__", "_abc_impl"),
    *("__orig_bases__", "__parameters__", "__firstlineno__", "__static_attributes__"),
}
MODULE_STATE = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


@functools.cache
def is_own_module(module: str | None) -> bool:
    """Whether a module is code of the user: not dragfl, the standard library or an installed package."""
    if module is None or module == "__main__":
        return True
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

    With `code=False` functions and classes count by name; with `weights=False` the parameters and buffers of a module
    count by name and shape.
    """

    def __init__(self, *, code: bool = True, weights: bool = True) -> None:
        self.modules: set[str] = set()
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
        elif kind in (set, frozenset):
            self._sequence("set", sorted(self._branch().add(item).hexdigest() for item in value))
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif kind in WRAPPERS:  # made at each access, so their ids say nothing
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
        elif isinstance(value, dict | types.MappingProxyType) and not is_own_module(type(value).__module__):
            self._items("mapping", value)
        elif isinstance(value, types.ModuleType):
            self._write("module", value.__name__)
        elif isinstance(value, nn.Module):
            self._add_module(value)
        elif dataclasses.is_dataclass(value):
            self.add(type(value))
            self._items("fields", {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)})
        elif is_own_module(type(value).__module__):
            self.add(type(value))
            slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
            self._items("instance", getattr(value, "__dict__", {}) | {name: getattr(value, name) for name in slots})
            plain = next((kind for kind in CONTENTS if isinstance(value, kind)), None)
            if plain is not None:  # a subclass of a built-in type, such as a namedtuple
                self.add(plain(value))
        else:
            self._write("foreign", _qualified(type(value)), _name_or_repr(value))

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
        names = _names(function.__code__)
        for _, module in sorted(used.items()):  # `helpers.scale(x)`: the attribute of a module
            if isinstance(module, types.ModuleType) and is_own_module(module.__name__):
                self._items("module", {name: vars(module)[name] for name in names & vars(module).keys()})
        self._depth -= 1

    def _add_class(self, kind: type) -> None:
        self._write("class", _qualified(kind))
        if not self._code or not is_own_module(kind.__module__):
            return
        self._define(kind.__module__)
        self._depth += 1
        self._sequence("bases", [type(kind), *kind.__bases__])
        kept = {n: v for n, v in vars(kind).items() if n not in NOT_CODE and not isinstance(v, DESCRIPTORS)}
        self._items("attributes", kept)
        self._depth -= 1

    def _add_code(self, code: types.CodeType) -> None:
        """The instructions with the names and constants they use, so that no position in a table counts."""
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & FLAGS)
        self._write("code", code.co_name, repr(shape), repr(code.co_varnames))
        self._hash.update(code.co_exceptiontable)
        instructions = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for step, following in itertools.zip_longest(instructions, instructions[1:]):
            if following is None or following.opname != "STORE_NAME" or following.argval not in NOT_CODE:
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


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


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


def _name_or_repr(value: Any) -> str:
    """What distinguishes an object of a library: the name of a function, else its text without addresses."""
    try:
        name = getattr(value, "__qualname__", None)
        return name if isinstance(name, str) else ADDRESS.sub("", repr(value))
    except Exception:  # of a repr
        return ""
