"""Who reads a number: whether a value is looked at only for a line that is printed or logged.

`only_printed(frame)` tells it from the source. The user's statement is a call of `print`, of a logger or of `sys.stdout.write` whose
result nobody takes, and between this call and the expression that turned the value into text or a plain number stand only
expressions that make text of it. `in_text(frame)` tells whether Python's `%` makes text of the value.

Invariant: where the answer is True, no variable, container or branch of the user's gets what was read. Without source it is False.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from opcode import opmap
from types import CodeType, FrameType, ModuleType
from typing import Any

from .frames import is_users
from .parsing import parsed

_Path = tuple[ast.AST, ...]
_Place = tuple[int | None, int | None, int | None, int | None]

_LOGGERS = ("logging", "_pytest")
_LEVELS = frozenset("debug info warning error critical exception log".split())
_SAYING = _LEVELS | {"print", "write"}
_TEXT_OF_ONE = frozenset("str repr ascii format float int complex round abs".split())
"""Functions of Python that make text or a plain number of their first argument, and keep nothing."""

_OF_TEXT = frozenset("format join ljust rjust center strip".split())
_PARTS = (
    ast.FormattedValue,
    ast.JoinedStr,
    ast.BinOp,
    ast.UnaryOp,
    ast.Tuple,
    ast.List,
    ast.keyword,
)
"""Expressions that make text, or a plain number, of their parts."""

_REMAINDERS = frozenset((6, 19))
"""The numbers of `%` and `%=` in BINARY_OP."""


def in_text(frame: FrameType) -> bool:
    """Whether `"%.3f" % t` asks for a number: `frame` is that of `__float__`, and its caller stands at a remainder of Python's text."""
    caller = frame.f_back
    if frame.f_code.co_name != "__float__" or caller is None or not is_users(caller):
        return False
    code, step = caller.f_code.co_code, caller.f_lasti
    return code[step] == opmap["BINARY_OP"] and code[step + 1] in _REMAINDERS


def only_printed(frame: FrameType | None) -> bool:
    """Whether what a method of a tensor's reads is only printed or logged; `frame` is the method's, or one that it called."""
    logged = False
    while frame is not None:
        package = (frame.f_globals.get("__name__") or "").partition(".")[0]
        if package not in ("tapegrad", *_LOGGERS):
            break
        logged |= package in _LOGGERS
        frame = frame.f_back
    if frame is None or not is_users(frame):
        return False
    innermost = frame
    while frame.f_code.co_name in ("<listcomp>", "<genexpr>") and frame.f_back is not None:
        frame = frame.f_back  # whose names the statement means
    if not _SAYING.intersection(frame.f_code.co_names):
        return False
    paths = _paths_at(innermost)
    return bool(paths) and all(
        ((logged and len(path) == 1) or _reads(path)) and _prints(path[-1], frame) for path in paths
    )


def _paths_at(frame: FrameType) -> Sequence[_Path]:
    """The expressions at which a frame stands, if they are part of a statement that only calls something."""
    code, step = frame.f_code, frame.f_lasti
    found = _PATHS.get((code, step))
    if found is None:
        place = next(islice(code.co_positions(), step // 2, None), (None,) * 4)
        try:
            table = _printed("".join(linecache.getlines(code.co_filename, frame.f_globals)))
        except (
            SystemError
        ):  # Python 3.11 counts calls of its parser wrongly where two threads parse at once
            return ()
        if len(_PATHS) >= _MOST:
            _PATHS.clear()
        found = _PATHS[code, step] = tuple(table.get(place, ()))
    return found


_PATHS: dict[tuple[CodeType, int], Sequence[_Path]] = {}
_MOST = 1024


@lru_cache(16)
def _printed(text: str) -> dict[_Place, list[_Path]]:
    """Expressions in statements that only call something, by place: each with the expressions around it, the call last."""
    found: dict[_Place, list[_Path]] = {}
    try:
        tree = parsed(text)
    except (
        SyntaxError,
        ValueError,
        RecursionError,
    ):  # a cell with magics, or what only looks like a file
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            for path in _within((node.value,)):
                at = path[0]
                if isinstance(at, ast.expr) and not isinstance(at, ast.Constant):
                    place = (at.lineno, at.end_lineno, at.col_offset, at.end_col_offset)
                    found.setdefault(place, []).append(path)
    return found


def _within(path: _Path) -> Iterator[_Path]:
    yield path
    for child in ast.iter_child_nodes(path[0]):
        yield from _within((child, *path))


def _reads(path: _Path) -> bool:
    """Whether the innermost expression makes text or a number of a value, and only printing gets that."""
    first = path[0]
    return (
        len(path) == 1
        or isinstance(first, ast.FormattedValue | ast.JoinedStr)
        or (isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mod))
        or _makes_text(first)
    ) and all(
        isinstance(node, _PARTS) or _makes_text(node) or getattr(node, "elt", None) is part
        for part, node in pairwise(path[:-1])
    )


def _makes_text(node: ast.AST) -> bool:
    """Whether a call makes text of its arguments: `str(x)`, `round(x, 3)`, `"{}".format(x)`, `x.item()`."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Name):
        return called.id in _TEXT_OF_ONE
    return isinstance(called, ast.Attribute) and (
        (called.attr in _OF_TEXT and isinstance(called.value, ast.Constant))
        or (called.attr in ("item", "tolist") and not node.args)
    )


def _prints(call: ast.AST, frame: FrameType) -> bool:
    """Whether the statement calls `print`, a logger, or the `write` of the terminal; the builtins in it mean what they say."""
    assert isinstance(call, ast.Call)
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    if any(
        name in names and not _is_builtin(_value(name, frame), name)
        for name in (*_TEXT_OF_ONE, "print")
    ):
        return False
    called = call.func
    if getattr(called, "id", getattr(called, "attr", None)) not in frame.f_code.co_names:
        return False  # the file is another one by now
    if isinstance(called, ast.Name):
        return called.id == "print" and all(
            word.arg in ("sep", "end", "flush") for word in call.keywords
        )
    if not isinstance(called, ast.Attribute):
        return False
    of = _object(called.value, frame)
    if called.attr == "write":
        return of is sys.stdout or of is sys.stderr
    logging = sys.modules.get("logging")
    return (
        called.attr in _LEVELS
        and logging is not None
        and (of is logging or isinstance(of, logging.Logger | logging.LoggerAdapter))
    )


def _is_builtin(value: Any, name: str) -> bool:
    """Whether a value is Python's own of a name, or a class that stands for it in a copied function and is equal to it."""
    of = getattr(builtins, name)
    return value is of or (isinstance(value, type) and value == of)


def _value(name: str, frame: FrameType) -> Any:
    code: CodeType = frame.f_code
    if name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        return frame.f_locals.get(name)
    return frame.f_globals.get(name, getattr(builtins, name, None))


def _object(node: ast.AST, frame: FrameType) -> Any:
    """What a name, or an attribute that stands in an object's or module's own table, is now; else None."""
    if isinstance(node, ast.Name):
        return _value(node.id, frame)
    if not isinstance(node, ast.Attribute):
        return None
    of = _object(node.value, frame)
    tables = [vars(of)] if isinstance(of, ModuleType) or hasattr(of, "__dict__") else []
    tables += [vars(kind) for kind in type(of).__mro__]
    return next((table[node.attr] for table in tables if node.attr in table), None)
