"""A shorter program that fails alike: statements are dropped, blocks taken apart, expressions replaced by their parts, as long as it fails.

"Alike" is the same engine and the same kind of failure (the same exception, or a wrong number). Candidates are tried from large to small,
until none helps or time is up.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.program import Leaf, Program, mapped


def candidates(source: str) -> Iterator[str]:
    """Shorter sources: one statement or one expression less each."""
    tree = ast.parse(source)
    places = [
        (number, name, k)
        for number, node in enumerate(ast.walk(tree))
        for name in ("body", "orelse")
        if isinstance(getattr(node, name, None), list)
        for k in range(len(getattr(node, name)))
    ]
    for number, name, k in places:
        for unwrap in (False, True):
            fresh = copy.deepcopy(tree)
            block = getattr(list(ast.walk(fresh))[number], name)
            inner = [*getattr(block[k], "body", []), *getattr(block[k], "orelse", [])]
            if unwrap and (not inner or isinstance(block[k], ast.FunctionDef)):
                continue
            if not unwrap and isinstance(block[k], ast.Return) and len(block) == 1:
                continue
            block[k : k + 1] = inner if unwrap else []
            if not block and name == "body":
                block.append(ast.Pass())
            yield ast.unparse(ast.fix_missing_locations(fresh)) + "\n"
    nodes = list(ast.walk(tree))
    for number, node in enumerate(nodes):
        if not isinstance(node, ast.expr) or isinstance(node, ast.Name | ast.Constant):
            continue
        if isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        parts = [c for c in ast.walk(node) if isinstance(c, ast.expr) and c is not node]
        parts = [
            c
            for c in parts
            if not isinstance(c, ast.Constant) and ast.unparse(c) not in ("np", "tg", "math")
        ]
        for part in sorted(parts[:6], key=lambda c: len(ast.unparse(c))):
            fresh = copy.deepcopy(tree)
            old = list(ast.walk(fresh))[number]
            yield ast.unparse(ast.fix_missing_locations(_Replace(old, part).visit(fresh))) + "\n"


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return copy.deepcopy(self.new) if node is self.old else super().visit(node)


def simpler(program: Program) -> Iterator[Program]:
    for source in candidates(program.source):
        if len(source) < len(program.source):
            yield replace(program, source=source)
    plain = mapped(lambda x: Leaf(x.shape, x.dtype) if x.layout != "C" else x, program.parameters)
    for k, p in enumerate(program.parameters):
        if plain[k] != p:
            yield replace(
                program,
                parameters=[*program.parameters[:k], plain[k], *program.parameters[k + 1 :]],
            )


def shortened(program: Program, fails: Callable[[Program], bool], seconds: float = 20.0) -> Program:
    """The shortest program found that still fails, none of whose candidates does (or time was up)."""
    end = time.monotonic() + seconds
    found = True
    while found and time.monotonic() < end:
        found = False
        for candidate in simpler(program):
            if time.monotonic() > end:
                break
            if fails(candidate):
                program, found = candidate, True
                break
    return program
