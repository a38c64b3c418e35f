"""Signatures of functions that are made by others: what `help`, editors and the stubs show where code says `*args, **settings`.

A made function hands its arguments on; `show` gives it the parameters of the function that takes them in the end. Hundreds of methods are
made when the library is imported, so a signature is read off the function's code, which takes a third of the time of
`inspect.signature`.

Invariant: a signature only tells; no call looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

import numpy as np

from .synonyms import OTHER_MEANING, SYNONYMS

F = TypeVar("F", bound=Callable[..., Any])

_BY_ANY, _BY_NAME, _BY_PLACE = (
    Parameter.POSITIONAL_OR_KEYWORD,
    Parameter.KEYWORD_ONLY,
    Parameter.POSITIONAL_ONLY,
)
_OPERANDS = ("other", "third")


METHODS = sorted(
    name
    for name in vars(np.ndarray).keys() & vars(np).keys() - {"partition", "put", "resize", "sort"}
    if callable(getattr(np, name)) and callable(getattr(np.ndarray, name))
)
"""NumPy's functions that arrays have as methods too; those that change the array are other functions than their namesakes."""

_UNSAID = {"dim": None, "keepdim": False}


def parameters_of(function: Any) -> list[Parameter]:
    """The parameters of a function that Python's code was written for, or of a ufunc, whose first operand is `self`."""
    if isinstance(function, np.ufunc):
        return [Parameter(name, _BY_ANY) for name in ("self", *_OPERANDS)[: function.nin]]
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & 0x0C or code.co_posonlyargcount:  # *args or **kwargs
        return list(signature(function).parameters.values())
    names = code.co_varnames
    n = code.co_argcount
    defaults = function.__defaults__ or ()
    plain = n - len(defaults)
    by_name = function.__kwdefaults__ or {}
    return [
        *(Parameter(name, _BY_ANY) for name in names[:plain]),
        *(Parameter(a, _BY_ANY, default=d) for a, d in zip(names[plain:n], defaults, strict=True)),
        *(
            Parameter(a, _BY_NAME, default=by_name.get(a, Parameter.empty))
            for a in names[n : n + code.co_kwonlyargcount]
        ),
    ]


def show(
    made: Callable[..., Any], by: Any, *, skip: int = 0, more: Sequence[Parameter] = ()
) -> None:
    """Let `made` show the parameters of the function `by`, which it calls with its own first: called `self`, as of a method.

    `skip` parameters after the first are given by `made` itself; `more` are its own.
    """
    first, *rest = parameters_of(by)
    told = [first.replace(name="self", annotation=Parameter.empty), *rest[skip:], *more]
    told.sort(key=lambda p: p.kind)
    made.__signature__ = Signature(told, __validate_parameters__=False)  # type: ignore[attr-defined]


def in_both_words(function: F) -> F:
    """Let a function that takes PyTorch's names of settings as `**others` show those that it follows: `dim` for axis, `keepdim`."""
    own = [p for p in parameters_of(function) if p.kind is not Parameter.VAR_KEYWORD]
    known = {p.name for p in own}
    theirs = [
        Parameter(name, _BY_NAME, default=_UNSAID[name])
        for name, numpys in SYNONYMS.items()
        if numpys in known and (name != "dim" or function.__name__ not in OTHER_MEANING)
    ]
    function.__signature__ = Signature([*own, *theirs], __validate_parameters__=False)  # type: ignore[attr-defined]
    return function


def positional(names: Sequence[str]) -> Signature:
    """The signature of a function of parameters that are given by position only."""
    return Signature([Parameter(name, _BY_PLACE) for name in names], __validate_parameters__=False)


__all__ = ["in_both_words", "parameters_of", "positional", "show"]
