"""Import-only stand-in for Triton, which is 1 GB and has no CPU driver.

Decorated kernels stay plain functions, so launching one (`kernel[grid](...)`)
raises TypeError instead of running.
"""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "3.9.0"


class _Anything:
    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        pass


def _attr(module, name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name[:1].isupper():
        value = type(name, (_Anything,), {"__module__": module.__name__})
    else:
        value = _Stub(f"{module.__name__}.{name}")
        sys.modules.setdefault(value.__name__, value)
    setattr(module, name, value)
    return value


class _Stub(types.ModuleType):
    __path__ = ()
    __getattr__ = _attr

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # @triton.jit
        return lambda fn: fn  # @triton.jit(...)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        del path, target
        if not name.startswith("triton."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Stub(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(_Finder())


def __getattr__(name):
    return _attr(sys.modules[__name__], name)


def cdiv(a, b):
    return -(-a // b)


def next_power_of_2(n):
    return 1 << max(n - 1, 0).bit_length()
