"""Stand-ins for what SGLang imports and a CPU cannot run: its CUDA kernels, Triton, torchvision, IPython.

Python imports this module when it starts, in the server and in each of its processes, if this folder is on its path.
A stand-in has every name that is asked of it and does nothing: a name in capitals is an empty class, any other is a
module that can be called as a decorator and gives the decorated function back. So modules import; a kernel that were
called all the same would return nothing and fail loudly. Whatever is really installed is taken first.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

STOOD_IN_FOR = {"sgl_kernel", "triton", "torchvision", "IPython"}
VERSION = "3.0.0"  # of Triton, which PyTorch asks for


class _Names(type):
    """A class with any attribute, as enumerations have them, made of any arguments."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__call__()

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _StandIn(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        value = _Names(name, (), {}) if name[0].isupper() else sys.modules.get(path) or _StandIn(path)
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else lambda decorated: decorated


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = fullname.partition(".")[0] in STOOD_IN_FOR
        return ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__version__ = VERSION  # type: ignore[attr-defined]


sys.meta_path.append(_Finder())
