"""Stubs for type checkers, made from what the library holds: what declarations attach to `Tensor` and lay out in modules of ops.

A declaration makes functions while the library is imported, where a checker cannot see them. `stubs()` writes down what there is then: for
each module that only shows functions made elsewhere (a *shelf*: `tapegrad.linalg`) a `.pyi` beside it, and `attached.pyi` with the methods
of `Tensor` that are not written in its class. Names and parameters are those of `inspect.signature`. What a function returns for a tensor
is observed: it is called on small tensors. Settings that say what comes back (`full`, `return_index`) are literals in that overload.

Modules with code of their own have no stub: their annotations are read where they stand.

The stubs have the names of one version of NumPy and SciPy, which their first lines tell.

Invariant: `python -m tapegrad stubs --check` finds the files as they would be made; a new op, method or public module needs no line here.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..core.primitive import CONSTANTS, FUNCTIONS, UFUNCS
from ..core.synonyms import SYNONYMS
from ..core.tensor import Tensor
from ..core.tensor import tensor as _tensor
from ..face import dtypes
from . import names

ROOT = Path(__file__).parents[1]

_HEAD = '''"""{summary}

Made by `python -m tapegrad stubs --update`, {versions}.
"""
'''


def versions() -> str:
    """The versions whose names the stubs have."""
    import scipy

    return f"of NumPy {np.__version__} and SciPy {scipy.__version__}"


_COMMON = """
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, SupportsIndex, overload, type_check_only
from builtins import bool as _bool, bytes as _bytes, float as _float, int as _int, list as _list, str as _str, tuple as _tuple

import numpy as np
"""

_AXIS = "SupportsIndex | Sequence[SupportsIndex] | None"
_OF_NAME = {"axis": _AXIS, "dim": _AXIS, "keepdims": "_bool", "keepdim": "_bool"}
"""What settings are, by their names; all others may be anything."""

_CALLED_WITH = {"where": 3}
"""Functions that return another kind of result for fewer arguments, with the number of those that the overloads for tensors have."""

_OF_ANNOTATION = {"bool": "_bool", "int": "SupportsIndex", "float": "_float", "str": "_str"}
"""Annotations that are taken over, from code that has them as text."""

_TELLING = {"full", "cov", "retstep", "compute_uv", "derivative", "returned"}
"""Settings that change the kind of result; so does each that is called return_something, and the mode of a QR decomposition."""


def stubs() -> dict[Path, str]:
    """The text of every stub, by its path."""
    made = {ROOT / "core" / "attached.pyi": attached()}
    for name in shelves():
        module = import_module(name)
        path = Path(str(module.__file__))
        made[path.with_suffix(".pyi")] = shelf(module)
    return made


def shelves() -> list[str]:
    """Public modules that show functions made by declarations, and define none themselves."""
    found = []
    for name in [*names.PLACES, *names.MODULES]:
        holder = names.holder_of(name)
        if isinstance(holder, ModuleType):
            values = [getattr(holder, public) for public in public_names(holder)]
            own = any(
                inspect.isclass(v) or (inspect.isfunction(v) and not is_made(v))
                for v in values
                if getattr(v, "__module__", None) == name
            )
            if not own and any(is_made_hashable(v) or is_ours(v) for v in values):
                found.append(name)
    return found


def is_ours(value: Any) -> bool:
    """Whether a value is an object of one of our classes that stands for a family of functions: a distribution of `tapegrad.stats`."""
    kind = type(value)
    return kind.__module__.startswith("tapegrad.stats.") and not isinstance(value, type)


def public_names(module: ModuleType) -> list[str]:
    """The names of a module that are for use: those that it lists, or that `dir` shows."""
    listed = vars(module).get("__all__")
    found = set(dir(module) if "__dir__" in vars(module) or listed is None else listed)
    # NumPy's own modules and machinery are not what the mirror of NumPy is for.
    return sorted(n for n in found if not n.startswith("_") and n != "annotations")


def is_made(value: Any) -> bool:
    """Whether a function comes from a declaration, or has no annotations: either way a checker learns nothing of it."""
    if isinstance(value, np.ufunc) or value in _constants():
        return True
    if not inspect.isfunction(value):
        return False
    if any(hasattr(value, mark) for mark in ("primitive", "operands", "source")):
        return True
    unsaid = value.__annotations__.get("return", "Any") == "Any"
    ours = value.__module__.startswith("tapegrad.ops.")
    return value in _registered() or (unsaid and ours) or "return" not in value.__annotations__


def _constants() -> set[Any]:
    return {f for f in CONSTANTS if callable(f)}


def _registered() -> set[Any]:
    return {f for f in [*FUNCTIONS.values(), *UFUNCS.values()] if inspect.isfunction(f)}


# ------------------------------------------------------------------------------------------------------- modules


def shelf(module: ModuleType) -> str:
    """The stub of a module."""
    imports: list[str] = []
    texts: list[str] = []
    listed = public_names(module)
    hidden = [n for n in (*getattr(module, "_NUMPYS", ()), *_torchs(module)) if n not in listed]
    for name in [*listed, *sorted(hidden)]:
        value = getattr(module, name)
        source = _source(module, name, value)
        if source:
            imports.append(source)
        elif isinstance(value, np.ufunc):
            texts.append(f"{name}: _Ufunc{value.nin}")
        elif is_ours(value):
            kind = type(value)
            imports.append(f"from {kind.__module__} import {kind.__name__} as _{kind.__name__}")
            texts.append(f"{name}: _{kind.__name__}")
        elif callable(value):
            texts.append(definition(name, value))
        else:
            texts.append(f"{name}: {_typed(value)}")
    for name, value in vars(module).items():
        if inspect.isclass(value) and name not in listed and name[0] != "_":
            if value.__module__.startswith("tapegrad.stats."):
                imports.append(f"from {value.__module__} import {value.__name__} as {name}")
        if name.startswith("__ua_"):
            texts.append(definition(name, value) if callable(value) else f"{name}: _str")
    if module.__name__ == "tapegrad":
        texts.append("__version__: _str")
    if "__all__" in vars(module):
        texts.append(f"__all__ = {sorted(module.__all__)!r}")
    local = f"from tapegrad.core.attached import {', '.join(f'{n} as {n}' for n in _results_used(texts))}\n"
    text = "\n".join([*sorted(set(imports)), "", *texts])
    needs = (
        "from tapegrad.core.tensor import Tensor as Tensor\n"
        if "Tensor" in "\n".join(texts)
        else ""
    )
    summary = (inspect.getdoc(module) or module.__name__).splitlines()[0]
    return (
        _HEAD.format(summary=summary, versions=versions())
        + _COMMON
        + needs
        + (local if _results_used(texts) else "")
        + text
        + "\n"
    )


def _torchs(module: ModuleType) -> Sequence[str]:
    return tuple(dtypes.TORCHS_NAMES) if module.__name__ == "tapegrad" else ()


def _results_used(texts: Sequence[str]) -> list[str]:
    """Names of `attached.pyi` that definitions mention."""
    text = "\n".join(texts)
    known = [*(f"_Ufunc{n}" for n in (1, 2)), *sorted(_RESULTS)]
    return [name for name in known if name in text]


def _source(module: ModuleType, name: str, value: Any) -> str | None:
    """An import statement for what is written down elsewhere; None for what this stub has to say itself."""
    top = import_module("tapegrad")
    if module.__name__ == "tapegrad.numpy" and not isinstance(value, ModuleType):
        if name in public_names(top) and getattr(top, name) is value:
            return f"from tapegrad import {name} as {name}"
        if getattr(np, name, None) is value:
            return f"from numpy import {name} as {name}"
    if isinstance(value, ModuleType):
        package, _, last = value.__name__.rpartition(".")
        return f"from {package} import {last} as {name}"
    if is_made_hashable(value):
        return None
    if getattr(np, name, None) is value:
        return f"from numpy import {name} as {name}"
    home = getattr(value, "__module__", None)
    theirs = str(getattr(value, "__name__", name))
    lazy = top._LAZY.get(name) if module is top else None
    places: list[str] = [*([f"tapegrad{lazy}"] if lazy else []), *([home] if home else [])]
    for place in places:
        try:
            found = getattr(import_module(place), theirs, None)
        except ImportError:
            continue
        if found is value and place != module.__name__:
            return f"from {place} import {theirs} as {name}"
    return None


def is_made_hashable(value: Any) -> bool:
    try:
        return is_made(value)
    except TypeError:  # what has no hash is no function
        return False


# ----------------------------------------------------------------------------------------------------- functions


def definition(name: str, function: Any) -> str:
    """A function, or its overloads: for each operand that may be a tensor one, and one for everything else."""
    parameters = _parameters(function)
    if parameters is None:
        return f"def {name}(*args: Any, **kwargs: Any) -> Any: ..."
    whole, parameters = parameters, _as_called(function, parameters)
    result = observed(function, parameters)
    operands = _operands(function, parameters)
    if result == "Any" or not operands:
        return f"def {name}({_listing(parameters)}) -> {result if not operands else 'Any'}: ..."
    overloads = []
    for operand in operands[:3]:
        several = operand.name in _sequences(function)
        kind = "Sequence[Tensor]" if several else "Tensor"
        told = _listing(parameters, {operand.name: kind}, telling=True)
        overloads.append(f"@overload\ndef {name}({told}) -> {result}: ...")
    return "\n".join([*overloads, f"@overload\ndef {name}({_listing(whole)}) -> Any: ..."])


def _parameters(function: Any) -> Sequence[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _operands(function: Any, parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters in which a tensor is followed."""
    op = getattr(function, "primitive", None)
    known = getattr(function, "operands", None)
    if known is None and op is not None and hasattr(function, "source"):
        settings = {*op.settings, *SYNONYMS}
        known = {p.name for p in parameters} - settings
    if known is None:
        fixed = set(getattr(function, "fixed", ()))
        known = {p.name for p in parameters if p.default is p.empty} - fixed
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p for p in parameters if p.name in known]
    required = [p for p in found if p.kind not in plain or p.default is p.empty]
    return required if function not in _constants() else required[:1]


def _sequences(function: Any) -> set[str]:
    """Parameters that are sequences of operands."""
    return {"xs", "tup", "arrays", "arys", "seq"} if not hasattr(function, "fixed") else set()


def _listing(
    parameters: Sequence[inspect.Parameter],
    kinds: dict[str, str] | None = None,
    telling: bool = False,
) -> str:
    """Parameters as they stand in a stub, with what each is."""
    kinds = kinds or {}
    parts = []
    by_name = False
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not by_name:
            by_name = True
            if not any(q.kind is q.VAR_POSITIONAL for q in parameters):
                parts.append("*")
        star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        kind = kinds.get(p.name) or _kind(p, telling)
        if star == "*" and kind.startswith("Sequence["):
            kind = kind[len("Sequence[") : -1]
        default = "" if p.default is p.empty else " = ..."
        parts.append(f"{star}{p.name}: {kind}{default}")
        nearest = parameters[i + 1] if i + 1 < len(parameters) else None
        if p.kind is p.POSITIONAL_ONLY and (nearest is None or nearest.kind is not p.kind):
            parts.append("/")
    return ", ".join(parts)


def _kind(p: inspect.Parameter, telling: bool) -> str:
    if telling and (p.name in _TELLING or p.name.startswith("return_") or p.default == "reduced"):
        return f"Literal[{p.default!r}]"
    if p.name in _OF_NAME and type(p.default) in (bool, int, tuple, type(None)):
        return _OF_NAME[p.name]
    return _OF_ANNOTATION.get(p.annotation, "Any")


# ---------------------------------------------------------------------------------------------- what comes back

_RESULTS: dict[str, tuple[str, ...]] = {}
"""Named tuples that functions return, by name: their fields."""


def observed(function: Any, parameters: Sequence[inspect.Parameter], method: bool = False) -> str:
    """What a function returns for a tensor, as an annotation; Any where no small call was found that it takes."""
    key = (function, method)
    if key not in _SEEN:
        _SEEN[key] = _observed(function, parameters, method)
    return _SEEN[key]


_SEEN: dict[Any, str] = {}


def _as_called(
    function: Any, parameters: Sequence[inspect.Parameter]
) -> Sequence[inspect.Parameter]:
    """The parameters, of which more are needed for the result that the overloads for tensors tell."""
    n = _CALLED_WITH.get(getattr(function, "__name__", ""), 0)
    return [p.replace(default=p.empty) if i < n else p for i, p in enumerate(parameters)]


def _observed(function: Any, parameters: Sequence[inspect.Parameter], method: bool) -> str:
    parameters = parameters if method else _as_called(function, parameters)
    if "save" in getattr(function, "__name__", ""):
        return "None"
    for given in _calls(parameters, method):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                result = function(*given())
            except Exception:
                continue
            return _typed(result)
    return "Any"


def _matrix() -> Tensor:
    return _tensor([[0.5, 0.1, 0.0], [0.1, 0.6, 0.2], [0.0, 0.2, 0.7]])


def _vector() -> Tensor:
    return _tensor([0.25, 0.5, 0.75])


_FIRST: tuple[Callable[[], Any], ...] = (
    _matrix,
    _vector,
    lambda: _tensor(0.5),
    lambda: _tensor([0, 1, 0]),
    lambda: [_matrix(), _matrix()],
    lambda: "ij->i",
    lambda: (_matrix(), False),
)
_REST: tuple[Callable[[], Any], ...] = (
    _matrix,
    _vector,
    lambda: 1,
    lambda: 0,
    lambda: _tensor(0.5),
    lambda: np.array([0, 1, 0]),
    lambda: np.zeros((3, 3), int),
    lambda: np.ones((3, 3), bool),
    lambda: (3, 3),
    lambda: (3, 1),
    lambda: (1, 1),
    lambda: [(1, 1), (1, 1)],
    lambda: "F",
    lambda: "cpu",
    lambda: np.float32,
    lambda: np.sum,
)
_HINTS: dict[str, tuple[Callable[[], Any], ...]] = {
    **dict.fromkeys(("dim", "axis", "dim0", "axis1", "start", "source_axis"), (lambda: 0,)),
    "length": (lambda: 1,),
    "index": (lambda: np.array([0, 1, 0]), lambda: np.zeros((3, 3), int), lambda: 0),
}
"""What to try for required parameters of these names, instead of everything."""


def _calls(
    parameters: Sequence[inspect.Parameter], method: bool
) -> Iterator[Callable[[], list[Any]]]:
    """Calls to try, each of tensors made anew, since some write to theirs."""
    required = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    free = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    counts = [len(required)] if not free else [len(required), len(required) + 1, len(required) + 2]
    for count in counts:
        if count > 2:  # operands of one kind
            yield lambda count=count: [_vector() for _ in range(count)]  # type: ignore[misc]
        for first in _FIRST[: 4 if method else None]:
            names = [p.name for p in required[1:count]]
            choices = [_HINTS.get(name, _REST) for name in names]
            choices += [_REST] * (count - 1 - len(names))
            for rest in itertools.product(*choices):
                if count or free:
                    chosen = (first, *rest)[:count]
                    yield lambda chosen=chosen: [make() for make in chosen]  # type: ignore[misc]


def _typed(value: Any) -> str:
    """An annotation for what `value` is."""
    if isinstance(value, Tensor):
        return "Tensor"
    for kind in (bool, int, float, str, bytes):
        if type(value) is kind:
            return f"_{kind.__name__}"
    if value is None:
        return "None"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        name = type(value).__name__
        _RESULTS[name] = value._fields
        return name
    if isinstance(value, tuple | list):
        parts = {_typed(x) for x in value}
        one = parts.pop() if len(parts) == 1 else "Any"
        return f"_tuple[{one}, ...]" if isinstance(value, tuple) else f"_list[{one}]"
    return "Any"


# ------------------------------------------------------------------------------------------------------ methods


def attached() -> str:
    """The stub with the methods of `Tensor` that are not written in its class, and with kinds of results."""
    import_module("tapegrad.special")
    for name in shelves():  # named tuples are met on the way
        module = import_module(name)
        for public in public_names(module):
            value = getattr(module, public)
            if is_made_hashable(value) and not isinstance(value, np.ufunc):
                parameters = _parameters(value)
                if parameters is not None:
                    observed(value, parameters)
    written = _written()
    properties, methods = [], []
    for name, value in sorted(vars(Tensor).items()):
        if name in written or (name.startswith("_") and not name.endswith("__")):
            continue
        if isinstance(value, property):
            kind = _typed(getattr(_matrix(), name))
            properties.append(f"@property\ndef {name}(self) -> {kind}: ...")
            if value.fset is not None:
                properties.append(f"@{name}.setter\ndef {name}(self, value: Any) -> None: ...")
        elif inspect.isfunction(value):
            methods.append(_method(name, value))
    body = "\n".join(properties + methods).replace("\n", "\n    ")
    results = "\n".join(
        f"@type_check_only\nclass {name}(NamedTuple):\n"
        + "\n".join(f"    {field}: Tensor" for field in fields)
        for name, fields in sorted(_RESULTS.items())
    )
    summary = (inspect.getdoc(import_module("tapegrad.core.attached")) or "").splitlines()[0]
    return (
        _HEAD.format(summary=summary, versions=versions())
        + _COMMON
        + "from .autograd.hooks import RemovableHandle\nfrom .tensor import Tensor\n\n"
        + _UFUNCS
        + results
        + f"\n\n@type_check_only\nclass Attached:\n    {body}\n"
    )


_UFUNCS = """
@type_check_only
class _Ufunc(Protocol):
    @property
    def nin(self) -> _int: ...
    @property
    def nout(self) -> _int: ...
    reduce: Any
    accumulate: Any
    reduceat: Any
    outer: Any
    at: Any

@type_check_only
class _Ufunc1(_Ufunc, Protocol):
    @overload
    def __call__(self, x: Tensor, /, **settings: Any) -> Tensor: ...
    @overload
    def __call__(self, x: Any, /, out: Any = ..., **settings: Any) -> Any: ...

@type_check_only
class _Ufunc2(_Ufunc, Protocol):
    @overload
    def __call__(self, x: Tensor, y: Any, /, **settings: Any) -> Tensor: ...
    @overload
    def __call__(self, x: Any, y: Tensor, /, **settings: Any) -> Tensor: ...
    @overload
    def __call__(self, x: Any, y: Any, /, out: Any = ..., **settings: Any) -> Any: ...

"""


def _method(name: str, function: Any) -> str:
    """The stub of a method, with the result's type as it was observed."""
    parameters = _parameters(function)
    if parameters is None:
        return f"def {name}(self, *args: Any, **settings: Any) -> Any: ..."
    returns = str(function.__annotations__.get("return", "Any"))
    if name.startswith("__r") and name != "__round__":
        result = "Tensor"
    elif returns in ("Tensor", "None", "RemovableHandle"):
        result = returns
    elif name.startswith("__array_"):
        result = "Any"
    else:
        result = observed(function, parameters, method=True)
    if name.startswith("__") and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters):
        parameters = [p.replace(kind=p.POSITIONAL_ONLY) for p in parameters]
    own, *others = parameters
    own_kind = f"{own.name}"
    listed = _listing([own, *others], {own.name: "\0"}).replace(f"{own.name}: \0", own_kind, 1)
    ignore = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    return f"def {name}({listed}) -> {result}: ...{ignore}"


def _written() -> set[str]:
    """Names that the class statement of `Tensor` binds."""
    tree = ast.parse(inspect.getsource(import_module("tapegrad.core.tensor")))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor").body
    found = {"__module__", "__doc__", "__weakref__", "__annotations__", "__dict__", "__slots__"}
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            found.add(statement.name)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.add(statement.target.id)
        elif isinstance(statement, ast.Assign):
            found |= {t.id for t in statement.targets if isinstance(t, ast.Name)}
    return found


__all__ = ["attached", "observed", "public_names", "shelf", "shelves", "stubs", "versions"]
