"""Effects: whether a function does anything beside returning a value, told from its code without running it.

A function that is compiled runs in Python while it is traced, and not again: what it prints, counts, draws or writes elsewhere
would happen once. Who asks for `tg.compile` knows that. Where the library compiles by itself, it has to be sure first, and a
function of which it is not stays as it is.

The walk begins at the function and goes on through every Python function that it refers to. Names from outside (closure, globals,
`self` of a method) are followed to their values as far as attributes lead; what is known of a value then decides: arrays, numbers and
functions of NumPy without effects pass, anything that is not on a list does not. Writes are allowed into what the function has
just made, which only its source can tell.

Invariant: `effect(f)` is None only if all code that was found is known to be free of effects; the answer is a reason, not a proof,
wherever a name could not be followed.
"""

from __future__ import annotations

import ast
import builtins
import dis
import enum
import functools
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..compiler import Compiled
from ..compiler.surroundings import _LIBRARIES
from ..core.parsing import parsed
from ..core.tape import BIG
from ..core.tensor import Tensor, value_of

MOST = 2000
"""Values and functions that are looked at; a function that refers to more is not judged."""

CALM_BUILTINS = frozenset(
    "abs all any bool callable complex dict divmod enumerate filter float frozenset getattr hasattr hash int isinstance "
    "issubclass iter len list map max min next pow range repr reversed round set slice sorted str sum tuple type zip".split()
)

CALM_LIBRARIES = frozenset({"math", "cmath", "operator", "itertools", "_operator"})
"""Modules of Python all of whose functions only compute."""

ARRAY_LIBRARIES = ("numpy", "tapegrad", "scipy.special", "scipy.linalg")

RESTLESS = frozenset(
    # files and settings
    "save savez savez_compressed savetxt load loadtxt genfromtxt fromfile fromregex memmap seterr seterrcall setbufsize "
    "set_printoptions printoptions errstate info show_config test tofile dump dumps setflags "
    # writes into arguments
    "copyto put place putmask fill_diagonal put_along_axis at "
    # the graph of the caller, and what is drawn
    "backward register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ detach_ set_data "
    "rand randn randint manual_seed set_engine set_num_threads check_gradient check_adjoint check_op make_dot current_tape "
    "minimize least_squares root".split()
)
"""Names of NumPy's, the tensors' and ours that do more than compute."""

MUTATORS = frozenset(
    "append extend insert remove pop popitem clear update setdefault add discard sort reverse fill resize partition "
    "itemset byteswap intersection_update difference_update symmetric_difference_update".split()
)
"""Methods that change what they belong to (and may have innocent namesakes)."""

METHODS = frozenset(
    name
    for kind in (Tensor, np.ndarray, list, tuple, dict, set, str, float, int, complex, np.float64)
    for name in dir(kind)
) | frozenset(name for name in dir(np) if not name.startswith("_"))  # `np` may be a local name
"""Methods of values that come up inside a function."""

MAKERS = frozenset(
    "zeros ones empty full zeros_like ones_like empty_like full_like copy clone list dict set array arange linspace eye".split()
)
"""Calls whose result nobody else holds."""

MAGIC = frozenset(
    "__getattr__ __getattribute__ __getitem__ __iter__ __array__ __array_ufunc__ __array_function__ __add__ __mul__ "
    "__matmul__ __enter__ __len__ __bool__".split()
)
"""Methods by which a class runs code of its own where none is called."""

TRANSPARENT = ("PUSH_NULL", "CACHE", "EXTENDED_ARG", "NOP", "RESUME", "COPY_FREE_VARS", "PRECALL")

_METHODS_MARKED = sys.version_info >= (3, 12)
"""Whether LOAD_ATTR tells methods that are called by its lowest bit."""

LOCAL: Any = object()
"""Stands for a value that is only known when the function runs."""


class _Effect(Exception):
    """What was found, in words."""


def effect(f: Callable[..., Any], others_act: bool = False) -> str | None:
    """Why `f` may do, or depend on, more than its arguments and constants say; None where nothing was found.

    With `others_act` somebody may change, between two calls of `f`, what it reads: then lists, dictionaries, attributes and big
    arrays from outside count, too.

    >>> effect([].append)
    'it calls append of a list from outside'
    >>> effect(functools.partial(np.sum, axis=0))
    """
    try:
        _Walk(others_act).value(f, called=True)
    except _Effect as found:
        return str(found)
    return None


class _Walk:
    """Code and values that are still to be looked at are on Python's stack; those that were, in `seen`."""

    def __init__(self, others_act: bool) -> None:
        self.others_act = others_act
        self.seen: dict[int, Any] = {}  # the values keep their numbers from being used again

    # -------------------------------------------------------------------------------- values

    def value(self, value: Any, called: bool = False) -> None:
        """Raise unless this value from outside is harmless, in whatever way it is used."""
        if isinstance(value, (bool, int, float, complex, str, bytes, type(None), types.ModuleType)):
            return
        if id(value) in self.seen:
            return
        self.seen[id(value)] = value
        if len(self.seen) > MOST:
            raise _Effect("it refers to more than can be looked at")
        if isinstance(value, np.ndarray | Tensor):
            self._array(value)
        elif isinstance(value, (np.generic, np.dtype, enum.Enum, slice, range, type(...))):
            return
        elif isinstance(value, tuple | frozenset):
            for item in value:
                self.value(item)
        elif isinstance(value, list | dict | set):
            self._container(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, np.ufunc | Compiled):
            return
        elif isinstance(value, functools.partial):
            self.value(value.func, called=True)
            self.value((*value.args, *value.keywords.values()))
        elif isinstance(value, types.MethodType):
            self.value(value.__self__)
            self._function(value.__func__, value.__self__)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.BuiltinFunctionType):
            self._builtin(value)
        elif type(value).__module__.partition(".")[0] in _LIBRARIES and _of_arrays(
            getattr(value, "__module__", None) or "", getattr(value, "__name__", "at")
        ):
            return  # a function of NumPy's, of its own type; of a user's object no attribute is asked, which may run code
        else:
            self._instance(value, called)

    def _array(self, value: Any) -> None:
        data = value_of(value)
        if data.dtype == object:
            raise _Effect("it reads an array of objects")
        if self.others_act and data.nbytes > BIG:
            raise _Effect("it reads a big array that may change between two calls")

    def _container(self, value: Any) -> None:
        if self.others_act:
            raise _Effect(f"it reads a {type(value).__name__} that may change between two calls")
        if type(value) not in (list, dict, set):
            raise _Effect(f"it reads a {type(value).__name__}")
        for item in value.values() if isinstance(value, dict) else value:
            self.value(item)

    def _class(self, value: type) -> None:
        module = value.__module__.partition(".")[0]
        if module == "builtins" and value.__name__ in CALM_BUILTINS:
            return
        if issubclass(value, BaseException | np.generic):
            return
        if issubclass(value, tuple) and hasattr(value, "_fields"):
            return
        if module in CALM_LIBRARIES:
            return
        raise _Effect(f"it uses the class {value.__name__}")

    def _builtin(self, value: Any) -> None:
        owner, name = value.__self__, value.__name__
        module = value.__module__ or ""
        if owner is builtins and name in CALM_BUILTINS:
            return
        if owner is None or isinstance(owner, types.ModuleType):
            if owner is not builtins and (module in CALM_LIBRARIES or _of_arrays(module, name)):
                return
        elif name in METHODS and name not in RESTLESS and name not in MUTATORS:
            return self.value(owner)
        elif name in MUTATORS:
            raise _Effect(f"it calls {name} of a {type(owner).__name__} from outside")
        raise _Effect(f"it calls {name}")

    def _instance(self, value: Any, called: bool) -> None:
        """An object of the user's: its attributes are followed where they are read."""
        kind = type(value)
        if kind.__module__.partition(".")[0] == "tapegrad" and called:
            # What is made by decorators (ops, functions of other libraries): no code of the user's that could be seen.
            raise _Effect(f"it is a {kind.__name__}")
        if kind.__module__.partition(".")[0] in _LIBRARIES or kind.__module__ == "functools":
            raise _Effect(f"it uses a {kind.__module__}.{kind.__name__}")
        if self.others_act:
            raise _Effect(f"it reads a {kind.__name__} that may change between two calls")
        own = {name for base in kind.__mro__[:-1] for name in vars(base)}
        if own & MAGIC or not (hasattr(value, "__dict__") or "__slots__" in own):
            raise _Effect(f"it uses a {kind.__name__}, whose methods run unseen")
        if "__call__" in own:
            self._function(kind.__call__, value)

    def _attribute(self, value: Any, name: str, called: bool) -> Any:
        """`value.name`, or LOCAL where that is known only when it is run."""
        if isinstance(value, types.ModuleType):
            return getattr(value, name, LOCAL)
        if isinstance(value, types.FunctionType | type | np.ufunc):
            if name in RESTLESS or not hasattr(value, name):
                raise _Effect(f"it uses {getattr(value, '__name__', value)}.{name}")
            return getattr(value, name)
        self.value(value)
        if isinstance(value, np.ndarray | Tensor | list | dict | set | tuple | str | np.generic):
            if hasattr(type(value), "_fields") and name in type(value)._fields:
                return getattr(value, name)
            if name in MUTATORS:
                raise _Effect(f"it calls {name} of a {type(value).__name__} from outside")
            self._method(name)
            return LOCAL
        found = inspect.getattr_static(value, name, LOCAL)
        if isinstance(found, types.FunctionType):
            return types.MethodType(found, value)
        if isinstance(found, property):
            self._function(found.fget, value)
            return LOCAL
        if isinstance(found, types.MemberDescriptorType):  # of __slots__
            return getattr(value, name)
        if isinstance(found, staticmethod | classmethod) or hasattr(type(found), "__get__"):
            raise _Effect(f"it uses {type(value).__name__}.{name}")
        return found

    def _method(self, name: str) -> None:
        if name in RESTLESS or name not in METHODS:
            raise _Effect(f"it calls a method {name}")

    # -------------------------------------------------------------------------------- code

    def _function(self, function: Any, owner: Any = LOCAL) -> None:
        """Raise unless a function's code, and what it refers to, is free of effects; `owner` is its first argument if known."""
        if not isinstance(function, types.FunctionType):
            return self.value(function)
        module = function.__module__ or ""
        if module.partition(".")[0] in _LIBRARIES and "<locals>" not in function.__qualname__:
            if module in CALM_LIBRARIES or _of_arrays(module, function.__name__):
                return
            raise _Effect(f"it calls {module}.{function.__name__}")
        if module.partition(".")[0] == "tapegrad" and hasattr(function, "__wrapped__"):
            return self.value(function.__wrapped__)  # tg.grad(f), as a function
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(value)
        outside: dict[str, Any] = {}
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            try:
                outside[name] = cell.cell_contents
            except ValueError:
                outside[name] = LOCAL
        arguments = {}
        if owner is not LOCAL and function.__code__.co_argcount:
            arguments[function.__code__.co_varnames[0]] = owner
        if self._code(function.__code__, function.__globals__, outside, arguments):
            _demand_writes_inside(function)

    def _code(
        self, code: Any, scope: dict[str, Any], outside: dict[str, Any], arguments: dict[str, Any]
    ) -> bool:
        """Look through a code object and those inside it; whether anything is written to."""
        writes = False
        held: Any = LOCAL  # what the last instruction put on the stack, if it came from outside
        chain = False  # whether it did
        aliases, augmented = set(), set()
        before = ""
        steps = list(dis.get_instructions(code))
        stored = {step.argval for step in steps if step.opname == "STORE_FAST"}
        arguments = {name: value for name, value in arguments.items() if name not in stored}
        for step in steps:
            name = step.opname
            if name in TRANSPARENT:
                continue
            if name in ("LOAD_ATTR", "LOAD_METHOD"):
                called = name == "LOAD_METHOD" or (_METHODS_MARKED and bool(step.arg & 1))
                if chain:
                    held = self._attribute(held, step.argval, called)
                    chain = held is not LOCAL
                elif called:
                    writes |= step.argval in MUTATORS or step.argval.endswith("_")
                    self._method(step.argval)
                before = name
                continue
            if chain:
                self.value(held, called=True)
                if name == "STORE_FAST":
                    aliases.add(step.argval)
            elif name == "STORE_FAST" and before in ("BINARY_SUBSCR", "LOAD_ATTR"):
                aliases.add(step.argval)
            chain = False
            for kind, found in _loads(step, scope, outside, arguments):
                if chain:
                    self.value(held, called=True)
                chain, held = kind, found
            if name in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
                writes = True
            elif name == "STORE_FAST" and before == "AUGMENTED":
                augmented.add(step.argval)
            elif name in ("STORE_ATTR", "DELETE_ATTR"):
                raise _Effect(f"it sets the attribute {step.argval}")
            elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                raise _Effect(f"it sets the global {step.argval}")
            elif name in ("STORE_DEREF", "DELETE_DEREF") and step.argval in outside:
                raise _Effect(f"it sets {step.argval} of an enclosing function")
            elif name == "IMPORT_NAME":
                if step.argval not in (*ARRAY_LIBRARIES, *CALM_LIBRARIES, "scipy"):
                    raise _Effect(f"it imports {step.argval}")
            elif name in ("LOAD_BUILD_CLASS", "LOAD_SUPER_ATTR", "IMPORT_STAR", "SEND"):
                raise _Effect(f"it does what is not looked into ({name})")
            elif name in ("KW_NAMES", "LOAD_CONST") and _names_out(code, step):
                raise _Effect("it computes into an array (out=)")
            before = name
            if name == "BINARY_OP" and step.argrepr.endswith("="):
                before = "AUGMENTED"
        if aliases & augmented:
            raise _Effect(f"it changes {min(aliases & augmented)} in place")
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                inner = {
                    free: LOCAL if free in code.co_cellvars else outside.get(free, LOCAL)
                    for free in constant.co_freevars
                }
                writes |= self._code(constant, scope, inner, {})
        return writes


def _loads(
    step: dis.Instruction, scope: dict[str, Any], outside: dict[str, Any], arguments: dict[str, Any]
) -> Iterator[tuple[bool, Any]]:
    """What an instruction puts on the stack: whether it came from outside, and the value."""
    name = step.opname
    if name in ("LOAD_GLOBAL", "LOAD_NAME"):
        found = scope.get(step.argval, getattr(builtins, step.argval, LOCAL))
        yield found is not LOCAL, found
    elif name in ("LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
        found = outside.get(step.argval, LOCAL)
        yield found is not LOCAL, found
    elif name.startswith("LOAD_FAST"):
        for argument in step.argval if isinstance(step.argval, tuple) else (step.argval,):
            found = arguments.get(argument, LOCAL)
            yield found is not LOCAL, found


def _names_out(code: Any, step: dis.Instruction) -> bool:
    """Whether these are the names of keywords in a call, "out" among them."""
    names = code.co_consts[step.arg] if step.opname == "KW_NAMES" else step.argval  # type: ignore[index]
    return isinstance(names, tuple) and "out" in names


def _of_arrays(module: str, name: str) -> bool:
    """Whether a function belongs to NumPy or its like, and only computes."""
    inside = any(module == m or module.startswith((m + ".", "_" + m)) for m in ARRAY_LIBRARIES)
    return inside and "random" not in module and name not in RESTLESS


# ------------------------------------------------------------------------------------ writes


def _demand_writes_inside(function: types.FunctionType) -> None:
    """Raise unless everything that a function writes into by `a[i] =` or a method is a local name bound to something new."""
    try:
        tree = parsed(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        raise _Effect("it writes into something, and its source is not at hand") from None
    defined = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    if not defined:
        raise _Effect("it writes into something")
    for node in defined:
        _Writes(node).demand()


class _Writes:
    """What one function binds its names to, and what it writes into."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.bound: dict[str, list[ast.AST | None]] = {}
        self.written: list[ast.AST] = []
        a = function.args
        for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
            if argument is not None:
                self.bound.setdefault(argument.arg, []).append(None)
        for node in _inside(function):
            self._look(node)

    def _look(self, node: ast.AST) -> None:
        """Note which names a statement binds to others' memory and which it writes to."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            self._bind(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            if isinstance(node.target, ast.Subscript):
                self.written.append(node.target.value)
        elif isinstance(node, ast.For | ast.comprehension):
            self._bind(node.target, None)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, None)
        elif isinstance(node, ast.Delete):
            self.written += [t.value for t in node.targets if isinstance(t, ast.Subscript)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in MUTATORS or (name.endswith("_") and not name.endswith("__")):
                self.written.append(node.func.value)

    def _bind(self, target: ast.AST, value: ast.AST | None) -> None:
        if isinstance(target, ast.Name):
            self.bound.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Subscript):
            self.written.append(target.value)
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._bind(part, None)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None)

    def demand(self) -> None:
        for base in self.written:
            if not isinstance(base, ast.Name):
                raise _Effect(f"it writes into {ast.unparse(base)}")
            values = self.bound.get(base.id)
            if not values or not all(v is not None and _new(v) for v in values):
                raise _Effect(f"it writes into {base.id}")


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions defined in it."""
    unseen: list[ast.AST] = list(function.body)
    while unseen:
        node = unseen.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            unseen.extend(ast.iter_child_nodes(node))


def _new(value: ast.AST) -> bool:
    """Whether an expression makes an object that nobody else holds."""
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        return True
    if isinstance(value, ast.Call):
        made = value.func
        name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
        return name in MAKERS
    return False
