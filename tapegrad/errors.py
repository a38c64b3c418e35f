"""Every error tapegrad raises on purpose, each saying what was asked, why it cannot be, and what to write.

Two families: a *gradient would be lost or does not exist* (`GradientLost`, `NotDifferentiable`: both
also `TypeError`, the first `RuntimeError` besides), and *the graph cannot be walked as asked* (`GraphError`: also `RuntimeError`, the
type PyTorch raises, so that code written for PyTorch catches what it expects).

The message ends with the error's short name in brackets, as in `[plain-value]`. `python -m tapegrad error plain-value` and the guide's
page of errors give its remedy; both are written from `tapegrad.help.remedies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TapegradError(Exception):
    """Base of every error that tapegrad raises on purpose; `short_name` is its key in the guide's page of errors.

    >>> import tapegrad as tg
    >>> issubclass(tg.GradientLost, tg.TapegradError)
    True
    """

    short_name = ""

    def __init__(self, *args: object, name: str | None = None):
        super().__init__(*args)
        if name is not None:
            self.short_name = name

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} [{self.short_name}]" if self.short_name else text


class GradientLost(TapegradError, TypeError, RuntimeError):
    """A tracked value was about to leave the tape without anyone saying so. A TypeError as NumPy's, and a RuntimeError as PyTorch's.

    >>> import numpy as np, tapegrad as tg
    >>> try:
    ...     np.asarray(tg.tensor(1.0, requires_grad=True) * 2)
    ... except tg.GradientLost as error:
    ...     print(error.short_name)
    plain-value
    """

    short_name = "plain-value"


class NotDifferentiable(TapegradError, TypeError):
    """A derivative was asked of something that declares none.

    >>> import numpy as np, tapegrad as tg
    >>> try:
    ...     tg.grad(lambda x: x * np.ones(2))(1.0)
    ... except tg.NotDifferentiable as error:
    ...     print(error.short_name)
    not-scalar
    """

    short_name = "no-rule"


class GraphError(TapegradError, RuntimeError):
    """The tape cannot be walked as asked: freed, unused, of another shape, or never recorded.

    >>> import tapegrad as tg
    >>> y = tg.tensor(1.0, requires_grad=True) ** 2
    >>> y.backward()
    >>> try:
    ...     y.backward()
    ... except tg.GraphError as error:
    ...     print(error.short_name)
    freed-graph
    """


class TraceError(TapegradError, TypeError):
    """A function cannot be compiled as it is written: something Python did while it was traced would be frozen.

    >>> import tapegrad as tg
    >>> try:
    ...     tg.compile(lambda x: x * tg.rand(1))(2.0)
    ... except tg.TraceError as error:
    ...     print(error.short_name)
    frozen-value
    """


class IndependentValue(UserWarning):
    """The value of a differentiated function depends on none of the arguments that it was differentiated by: the gradient is zero.

    Such a gradient is nearly always a lost one: between the arguments and the value something untracked stands (`t.item()`,
    `t.detach()`, a comparison, `tg.no_grad()`). Transforms say so once for each line that calls them; `allow_unused=True` says that zero is
    meant, and `warnings.filterwarnings("error", category=tg.IndependentValue)` makes it an error.

    >>> import tapegrad as tg
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter('always')
    ...     _ = tg.grad(lambda x: x.detach() * 2)(1.0)
    >>> caught[0].category.__name__
    'IndependentValue'
    """


class NotFinite(TapegradError, FloatingPointError):
    """A value became NaN or infinite while `debug_nans` was on; the message says where and from what.

    >>> import numpy as np, tapegrad as tg
    >>> try:
    ...     with tg.debug_nans(), np.errstate(all='ignore'):
    ...         np.log(tg.tensor(-1.0))
    ... except tg.NotFinite as error:
    ...     print(error.short_name)
    tensor(nan)
    """

    short_name = "not-finite"


class CheckedAccessError(TapegradError, RuntimeError):
    """In checked mode (`TAPEGRAD_CHECK=1`): generated code left a buffer, or read what was never written.

    >>> import tapegrad as tg
    >>> issubclass(tg.CheckedAccessError, RuntimeError), tg.CheckedAccessError.short_name
    (True, 'checked-access')
    """

    short_name = "checked-access"


class GradcheckError(TapegradError, RuntimeError):
    """A gradient check failed; the message shows both Jacobians.

    >>> import tapegrad as tg
    >>> try:
    ...     tg.autograd.gradcheck(lambda x: x.detach() * x, tg.tensor(2.0, requires_grad=True))
    ... except tg.GradcheckError as error:
    ...     print(error.short_name)
    wrong-gradient
    """

    short_name = "wrong-gradient"


def demand_number(value: object, name: str) -> None:
    """Raise TypeError unless a setting is a real number (a NumPy scalar or 0-d array counts)."""
    try:
        float(value)  # type: ignore[arg-type]
        fits = not isinstance(value, str | bytes)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise TypeError(f"{name}={value!r} was given, but it is a number: write one.")


def demand_bool(value: object, name: str) -> None:
    """Raise TypeError unless a setting is True or False, as Python, NumPy or the numbers 0 and 1 write it."""
    if value is not True and value is not False:
        try:
            fits = not isinstance(value, str | bytes) and value in (0, 1)
        except ValueError:  # an array has no one answer
            fits = False
        if not fits:
            raise TypeError(f"{name}={value!r} was given, but it is True or False: write one.")


def demand_text(value: object, name: str) -> None:
    """Raise TypeError unless a setting is a word."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} was given, but it is a word: write one.")


def chosen(table: Mapping[Any, Any], key: Any, asker: str, name: str) -> Any:
    """The entry of a setting in a table of all there are; ValueError, which lists them, for another setting."""
    try:
        return table[key]
    except (KeyError, TypeError):  # also what cannot be a key
        options = ", ".join(map(repr, table))
        raise ValueError(
            f"{asker} was given {name}={key!r}, but knows no such {name}: choose among {options}."
        ) from None


def demand_callable(f: object, asker: str, instead: str = "pass a function") -> None:
    """Raise TypeError unless `f` can be called; `asker` is the public function that was given it."""
    if not callable(f):
        raise TypeError(
            f"{asker} was asked of {type(f).__name__}, which cannot be called: {instead}."
        )
