"""What `tg.njit` may be asked for, looked at where it is asked.

Numba reads its options when a function is compiled, and derivatives are made later still: a slip would show far from its line, or
never. So every option that `tg.njit` knows has its values here, and what is left goes to Numba as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core.cpu import CPUTargetOptions

MODES = ("auto", "form", "adjoint", "overload")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `tg.njit`: its own, checked, and those that Numba takes."""

    limit: int | None
    snapshots: int
    mode: str
    numba: dict[str, Any]


def checked(options: dict[str, Any]) -> Options:
    """The options as they were given, or an error that names the first that cannot be.

    >>> checked({"snapshots": 4, "checkpoint": "revolve", "fastmath": True})
    Options(limit=None, snapshots=4, mode='auto', numba={'fastmath': True})
    """
    given = dict(options)
    limit = _limit(given.pop("memory_limit", None))
    snapshots = _snapshots(given.pop("checkpoint", None), given.pop("snapshots", 0))
    mode = given.pop("mode", "auto")
    if not isinstance(mode, str):
        raise TypeError(_told("mode", mode, "its engines have names", 'mode="auto"'))
    if mode not in MODES:
        raise ValueError(
            f"njit was given mode={mode!r}, but its engines are 'auto', 'form', 'adjoint' and 'overload': write one of these."
        )
    for name, value in given.items():
        known = _NUMBA.get(name)
        if known is None and hasattr(CPUTargetOptions, name) and not name.startswith("__"):
            continue
        if known is None:
            raise TypeError(
                f"njit was given {name}={value!r}, which neither it nor numba.njit knows. Leave it out; there are "
                f"{', '.join(sorted(['memory_limit', 'checkpoint', 'snapshots', 'mode', *_NUMBA]))}."
            )
        good, means = known
        if not good(value):
            raise ValueError(
                f"njit was given {name}={value!r}, but that option is {means}. Write one of these."
            )
    return Options(limit, snapshots, mode, given)


def _told(name: str, value: Any, why: str, instead: str) -> str:
    return f"njit was given {name}={value!r}, but {why}. Write {instead}, say."


def _limit(value: Any) -> int | None:
    """Bytes of `memory_limit`; 2e9 is as good as 2_000_000_000."""
    if value is None:
        return None
    why, instead = "it is a number of bytes", "memory_limit=2_000_000_000"
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise TypeError(_told("memory_limit", value, why, instead))
    if not (math.isfinite(value) and value >= 1):
        raise ValueError(_told("memory_limit", value, why + ", one at least", instead))
    return int(value)


def _snapshots(scheme: Any, count: Any) -> int:
    """The number of snapshots; 0 for none."""
    told = f"njit was given checkpoint={scheme!r}, snapshots={count!r}"
    instead = 'Write checkpoint="revolve", snapshots=8, or neither.'
    if scheme is not None and not isinstance(scheme, str):
        raise TypeError(f"{told}: the schedule has a name. {instead}")
    if isinstance(count, bool | np.bool_) or not isinstance(count, int | np.integer):
        raise TypeError(f"{told}: the number of snapshots is a whole number. {instead}")
    if scheme not in (None, "revolve"):
        raise ValueError(f"{told}: there is one schedule, 'revolve'. {instead}")
    if count < 0 or (scheme is None) != (count == 0):
        raise ValueError(f"{told}: the schedule needs a number of snapshots. {instead}")
    return int(count)


def _either(*kinds: type) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, kinds)


def _is_switch(value: Any) -> bool:
    return value is None or (isinstance(value, bool | int | np.bool_) and value in (0, 1))


_SWITCH = _is_switch, "True or False"
_FAST = frozenset({"fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"})


def _fast(value: Any) -> bool:
    if isinstance(value, dict):
        return _FAST.issuperset(value) and all(isinstance(v, bool) for v in value.values())
    return _is_switch(value) or (
        isinstance(value, set | frozenset | list | tuple) and _FAST.issuperset(value)
    )


_NUMBA: dict[str, tuple[Callable[[Any], bool], str]] = {
    "boundscheck": _SWITCH,
    "cache": _SWITCH,
    "debug": _SWITCH,
    "error_model": (lambda v: v in ("numpy", "python"), "'numpy' or 'python'"),
    "fastmath": (_fast, f"True, False, or a set of LLVM's flags ({', '.join(sorted(_FAST))})"),
    "forceobj": _SWITCH,
    "inline": (
        lambda v: callable(v) or v in ("never", "always"),
        "'never', 'always' or a function",
    ),
    "locals": (_either(dict), "a dictionary of Numba's types by name"),
    "looplift": _SWITCH,
    "no_rewrites": _SWITCH,
    "nogil": _SWITCH,
    "nopython": _SWITCH,
    "parallel": (
        _either(bool, dict, type(None)),
        "True, False, or a dictionary of what is parallel",
    ),
    "pipeline_class": (_either(type), "a class of Numba's compilers"),
}
"""For the options of Numba's that people write, which values they have; the rest are looked at by Numba."""
