"""What a campaign met: constructs, layouts and types of programs, and states of engines."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

from tests.fuzz.program import Program, leaves


def features(program: Program) -> list[str]:
    """Names of what occurs in a program: ops, methods, statements, and layouts and types of its parameters."""
    found = set()
    for node in ast.walk(ast.parse(program.source)):
        if isinstance(node, ast.Attribute):
            base = (
                ast.unparse(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else ""
            )
            family = base.split(".")[0]
            found.add(
                f"op {base}.{node.attr}"
                if family in ("np", "tg", "math")
                else f"method {node.attr}"
            )
        elif isinstance(node, ast.stmt) and not isinstance(node, ast.Assign | ast.Expr):
            found.add(f"statement {type(node).__name__}")
        if isinstance(node, ast.Subscript):
            found.add(f"index {type(node.slice).__name__} {type(node.ctx).__name__}")
        elif isinstance(node, ast.Lambda | ast.Dict | ast.ListComp | ast.IfExp | ast.Compare):
            found.add(f"expression {type(node).__name__}")
    for p in program.parameters:
        for leaf in leaves(p):
            found |= {
                f"layout {leaf.layout}",
                f"type {leaf.dtype}",
                f"dimensions {len(leaf.shape)}",
            }
            found |= {"size zero"} if 0 in leaf.shape else set()
        found |= {f"container {type(p).__name__}"} if isinstance(p, tuple | list | dict) else set()
    return sorted(found)


class Coverage:
    def __init__(self) -> None:
        self.features: Counter[str] = Counter()
        self.states: dict[str, Counter[str]] = {}
        self.refusals: Counter[str] = Counter()
        self.programs = 0

    def add(self, answer: dict[str, Any]) -> None:
        self.programs += 1
        self.features.update(answer["features"])
        for engine, (state, text) in answer["states"].items():
            self.states.setdefault(engine, Counter())[state] += 1
            if state == "refused":
                self.refusals[text.split("\n")[0][:100]] += 1

    def states_met(self) -> str:
        lines = [f"{self.programs} programs", f"{'engine':14} passed  refused  unclear  failed"]
        for engine, c in self.states.items():
            share = 100 * c["refused"] / max(1, sum(c.values()))
            lines.append(
                f"{engine:14} {c['passed']:6} {c['refused']:8} {c['unclear']:8} {c['failed']:7}   ({share:.0f} % refused)"
            )
        return "\n".join(lines)

    def report(self) -> str:
        lines = [self.states_met()]
        families: dict[str, list[str]] = {}
        for name, n in sorted(self.features.items()):
            family, _, rest = name.partition(" ")
            families.setdefault(family, []).append(f"{rest} {n}")
        lines += [
            f"{family} ({len(names)}): {', '.join(names)}" for family, names in families.items()
        ]
        lines += ["most frequent refusals:"]
        lines += [f"  {n:4} {text}" for text, n in self.refusals.most_common(12)]
        return "\n".join(lines)
