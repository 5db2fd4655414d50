"""A device that computes on the CPU but keeps its tensors apart, as a GPU does.

Inside `FakeDevice()`, tensors made on or moved to torch's device "meta" are CPU tensors whose memory is marked. Every
result of an operation on marked memory is marked. An operation on marked and other tensors raises what CUDA raises.
What leaves the marked memory is noted: how many values, and the line of dragfl that caused it.

It cannot show what only a real device shows: kernels that are missing or that round differently, memory, and the time
of operations that wait for the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from dragfl.lazy import torch as lazy_torch

NAME = "meta"
CPU, DEVICE = torch.device("cpu"), torch.device(NAME)
COPY, READ = torch.ops.aten.copy_.default, torch.ops.aten._local_scalar_dense.default
INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_")  # operations that take indices from the CPU

COMPOSED = ((torch.nn.functional, "one_hot"), (Tensor, "quantile"), (torch, "quantile"))


class Transfer(NamedTuple):
    """Values that have left the device."""

    values: int
    line: str  # of dragfl, as file:line


class FakeDevice(TorchDispatchMode):
    """Inside, the fake device exists; `transfers` lists what has left it."""

    def __init__(self) -> None:
        super().__init__()
        self.transfers: list[Transfer] = []
        self._marked: dict[int, Any] = {}  # kept, so that no other memory gets the same address
        names = ("device", "to", "cpu", "tolist", "numpy", "__array__")
        self._plain = {name: getattr(Tensor, name) for name in names}
        replaced = {name: getattr(self, f"_{name.strip('_')}")() for name in names}
        self._patches = [patch.object(Tensor, name, value) for name, value in replaced.items()]
        self._patches.append(patch("torch.tensor", self._tensor(torch.tensor)))
        for module, name in COMPOSED:
            self._patches.append(patch.object(module, name, self._as_one(getattr(module, name))))

    def holds(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._marked

    def __enter__(self) -> FakeDevice:
        for patched in self._patches:
            patched.start()
        _forget_lookups()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for patched in self._patches:
            patched.stop()
        _forget_lookups()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        made_here = kwargs.get("device") == DEVICE
        if made_here:
            kwargs["device"] = CPU
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        held = [t for t in tensors if self.holds(t)]
        if held and (func is READ or (func is COPY and not self.holds(args[0]))):
            self._note(held[0])
            return func(*args, **kwargs)
        if held and func is not COPY:
            self._check(func, args, tensors)
        out = func(*args, **kwargs)
        if held or made_here:
            for tensor in tree_leaves(out):
                if isinstance(tensor, Tensor):
                    self._mark(tensor)
        return out

    def _check(self, func: Any, args: Any, tensors: list[Tensor]) -> None:
        """CUDA accepts tensors without dimensions from the CPU, and indices."""
        if func.overloadpacket.__name__ in INDEXED:
            tensors = [t for t in (args[0], *args[2:3]) if isinstance(t, Tensor)]
        if any(t.ndim and not self.holds(t) for t in tensors):
            raise RuntimeError(f"Expected all tensors to be on the same device, found two: {func} at {_line()}")

    def _mark(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._marked[storage._cdata] = storage
        return tensor

    def _note(self, tensor: Tensor) -> None:
        self.transfers.append(Transfer(tensor.numel(), _line()))

    def _device(self) -> Any:
        return property(lambda tensor: DEVICE if self.holds(tensor) else self._plain["device"].__get__(tensor))

    def _to(self) -> Callable[..., Tensor]:
        def to(tensor: Tensor, *args: Any, copy: bool = False, **kwargs: Any) -> Tensor:
            if args and isinstance(args[0], Tensor):
                args, kwargs = (), {"device": args[0].device, "dtype": args[0].dtype}
            if not self.holds(tensor):
                return self._plain["to"](tensor, *args, copy=copy, **kwargs)
            device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
            if device != CPU:
                return self._plain["to"](tensor, dtype or tensor.dtype, copy=copy)
            self._note(tensor)
            with _disable_current_modes():
                return self._plain["to"](tensor, dtype or tensor.dtype, copy=True)

        return to

    def _cpu(self) -> Callable[[Tensor], Tensor]:
        return lambda tensor: tensor.to(CPU)

    def _tolist(self) -> Callable[[Tensor], Any]:
        return lambda tensor: self._plain["tolist"](tensor.cpu())

    def _numpy(self) -> Callable[..., Any]:
        def numpy(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            if self.holds(tensor):
                raise TypeError(f"can't convert {NAME} device type tensor to numpy, at {_line()}")
            return self._plain["numpy"](tensor, *args, **kwargs)

        return numpy

    def _array(self) -> Callable[..., Any]:
        def array(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            tensor.numpy()
            return self._plain["__array__"](tensor, *args, **kwargs)

        return array

    def _tensor(self, plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """torch.tensor gives no values on the device "meta"."""

        def tensor(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
            made = plain(data, **kwargs)
            return made if device is None else made.to(device)

        return tensor

    def _as_one(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A function that C++ composes of others makes tensors on the device that it sees, the CPU."""

        def whole(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                made = plain(tensor, *args, **kwargs)
            return self._mark(made) if self.holds(tensor) else made

        return whole


def _forget_lookups() -> None:
    """`dragfl.lazy` keeps the functions that it has looked up, the patched or the plain ones."""
    for name in ("tensor", "quantile"):
        vars(lazy_torch).pop(name, None)


def _line() -> str:
    """The innermost line of dragfl."""
    frame: Any = sys._getframe()
    while frame is not None and "/dragfl/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/dragfl/')[2]}:{frame.f_lineno}" if frame else "outside of dragfl"
