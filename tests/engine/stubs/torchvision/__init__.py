"""Import-only stand-in for torchvision (text-only test engine).

PyPI's torchvision does not import beside a CPU build of torch.  SGLang and
Transformers only need the names to exist; any use raises.
"""

import enum
import sys
import types

__version__ = "0.0.0+stub"


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class _Stub(types.ModuleType):
    InterpolationMode = InterpolationMode
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*a, **k):
            raise RuntimeError(f"{self.__name__}.{name}: torchvision is a stub here")

        return missing


for _n in (
    "io",
    "ops",
    "models",
    "transforms",
    "transforms.functional",
    "transforms.v2",
    "transforms.v2.functional",
):
    _m = _Stub(f"{__name__}.{_n}")
    sys.modules[_m.__name__] = _m
    _p, _, _leaf = _m.__name__.rpartition(".")
    setattr(sys.modules[_p], _leaf, _m)
