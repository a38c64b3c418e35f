"""The array dialect: a statement is run with NumPy as soon as it is written, and kept if it gives finite numbers of moderate size.

So no rule about shapes or types is written here: an expression that NumPy refuses is drawn again. `Writer.values` holds what each name is
bound to after the statements so far. Stores go to arrays that share no memory with an argument.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np

import tapegrad as tg
from tests.fuzz.program import LAYOUTS, Leaf, Program

SIZE, LARGEST = 48, 200.0
SHAPES = [(), (3,), (4,), (5,), (2, 3), (3, 3), (4, 3), (3, 4), (4, 4), (2, 3, 2), (1, 4), (3, 1)]
SMOOTH = ["sin", "cos", "tanh", "arctan", "square", "expm1", "negative", "arcsinh", "conj"]
GUARDED = [
    "np.log(1.5 + np.abs({0}))",
    "np.sqrt(0.5 + {0} * {0})",
    "np.exp(-np.abs({0}))",
    "1.0 / (1.5 + {0} ** 2)",
    "np.abs({0})",
    "({0} ** 3) * 0.3",
    "np.maximum({0}, 0.1)",
    "np.clip({0}, -0.7, 0.9)",
    "np.where({0} > 0.2, {0}, 0.5 * {0})",
    "np.logaddexp({0}, 0.3)",
    "np.hypot({0}, 0.7)",
    "np.real({0})",
    "np.imag({0} * (1 + 0.5j))",
    "np.log1p(np.abs({0}))",
    "(0.4 + np.abs({0})) ** 1.3",
    "np.sign({0}) * {0}",
    "np.float32(0.5) * {0}",
    "({0}).astype(np.float64)",
    "np.nan_to_num({0})",
    "({0} + 0.3j)",
]
REDUCTIONS = ["sum", "mean", "max", "min", "prod", "std", "var", "ptp", "median", "linalg.norm"]
ALONG = ["cumsum", "cumprod", "sort", "diff", "flip", "fft.fft", "argsort"]
WHOLE = [
    "({0} @ {0}.T)",
    "np.matmul({0}, {1})",
    "np.dot({0}, {1})",
    "np.inner({0}, {1})",
    "np.outer({0}, {1})",
    "np.einsum('ij,kj->ik', {0}, {1})",
    "np.einsum('i,i', {0}, {1})",
    "np.einsum('ii->i', {0} @ {0}.T)",
    "np.einsum('...i,...i->...', {0}, {1})",
    "np.tensordot({0}, {1}, 1)",
    "np.linalg.solve({0} @ {0}.T + 3.0 * np.eye(len({0})), {1})",
    "np.linalg.inv({0} @ {0}.T + 3.0 * np.eye(len({0})))",
    "np.linalg.det({0} @ {0}.T + 2.0 * np.eye(len({0})))",
    "np.linalg.cholesky({0} @ {0}.T + 2.0 * np.eye(len({0})))",
    "np.trace({0})",
    "np.tril({0})",
    "np.diag({0})",
    "np.kron({0}, {1})[:4]",
    "np.concatenate(({0}, {1}))",
    "np.concatenate(({0}, {1}), axis=-1)",
    "np.stack(({0}, {1}))",
    "np.stack([{0}, {1}], axis=-1)",
    "np.vstack(({0}, {1}))",
    "np.where({0} > {1}, {0}, {1} * 0.5)",
    "np.maximum({0}, {1})",
    "np.convolve({0}, {1})",
    "np.interp({0}, [-1.0, 0.1, 1.2], [0.3, -0.2, 0.7])",
    "np.roll({0}, 1)",
    "np.repeat({0}, 2)",
    "np.tile({0}, 2)",
    "np.pad({0}, 1)",
    "np.take({0}, [0, 1, 1])",
    "np.take({0}, [1, 0], axis=0)",
    "np.take_along_axis({0}, np.argsort({0}, axis=0), axis=0)",
    "np.trapezoid({0})",
    "np.arctan2({0}, 1.5 + {1} ** 2)",
    "np.zeros_like({0})",
    "np.full({0}.shape, 0.5)",
    "np.triu({0}) + np.zeros_like({1})",
    "np.array([{0}, {1}])",
    "sum(r for r in {0})",
    "np.array([2.0 * r for r in {0}])",
    "np.linalg.norm({0})",
    "np.fft.irfft(np.fft.rfft({0}))",
    "np.count_nonzero({0} > 0) * {1}",
    "{0}.argmax() * {1}",
]
VIEWS = [
    "{0}.T", "{0}[::-1]", "{0}[::2]", "{0}[1:]", "{0}[:-1]", "{0}[..., ::-1]", "{0}[..., None]", "{0}[None]", "{0}[1::2]", "{0}[::-2]",
    "np.swapaxes({0}, 0, -1)", "{0}.reshape(-1)", "np.ravel({0})", "np.flip({0}, 0)", "np.flip({0})", "np.diagonal({0})", "{0}[0]", "{0}[-1]",
    "{0}[:, 1]", "{0}[:, ::2]", "{0}[..., 0]", "np.moveaxis({0}, 0, -1)", "np.squeeze({0})", "np.rot90({0})", "np.expand_dims({0}, 1)",
    "{0}[1:, 1:]", "np.broadcast_to({0}, (2, *{0}.shape))", "np.atleast_2d({0})", "np.split({0}, 2)[0]", "{0}.reshape(2, -1)",
    "{0}.reshape({0}.shape[::-1])", "{0}.T[1:]", "{0}.swapaxes(0, 1)", "np.transpose({0})", "np.fliplr({0})", "{0}[()]", "{0}[:1]", "{0}[:, None]",
    "{0}.real", "{0}.reshape(-1, order='F')", "{0}.T.reshape(-1)", "{0}[2:0:-1]", "{0}[1:1]",
]  # fmt: skip
COPIES = ["{0}[[0, 1]]", "{0}[[1, 1, 0]]", "{0}[:, [0, 1]]", "{0}[{0} > 0.1]", "{0}.copy()", "{0}.T.copy()", "{0}[np.arange({0}.size).reshape({0}.shape) % 3 == 0]", "{0}.flatten()", "np.copy({0})", "{0}[[[0], [1]], [0, 1]]", "{0}[np.ix_([0, 1], [1, 0])]", "{0} * 1.0", "{0} + 0.5", "0.5 * {0}"]  # fmt: skip
PLACES = ["[0]", "[-1]", "[::2]", "[1:]", "[::-1]", "[1::2]", "[...]", "[:]", "[..., 0]", "[:, 1]", "[:, ::-1]", "[..., ::2]", "[[0, 1]]", "[[1, 0]]", "[[0, 1], [1, 0]]", "[:, [1, 0]]", "[{0} > 0.1]", "[np.arange({0}.size).reshape({0}.shape) % 3 == 0]", "[~({0} > 0.3)]", "[np.abs({0}) < 0.8]", "[:-1, 1:]", "[0, 1]", "[1, ...]", "[np.array([True, False] * {0}.shape[0])[:{0}.shape[0]]]", "[:, None, 0]", "[()]", "[np.int64(1)]", "[1:1]", "[np.ix_([0, 1], [0, 1])]"]  # fmt: skip
HOSTS = ["{0}", "{0}", "{0}", "{0}", "{0}.T", "{0}[::-1]", "{0}.reshape(-1)", "np.flip({0}, 0)", "np.swapaxes({0}, 0, -1)", "{0}[1:]", "{0}[..., None]", "{0}.ravel()"]  # fmt: skip


class Unlucky(Exception):
    """No expression or statement of the kind that was asked for could be drawn."""


class Writer:
    def __init__(self, number: int) -> None:
        self.r = random.Random(number)
        self.number = number
        self.parameters: list[Any] = []
        self.names: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.safe: list[str] = []
        """Names of arrays made by rules that keep nothing of their result."""
        self.complex = self.r.random() < 0.2
        for _ in range(self.r.choice([1, 1, 2, 2, 3])):
            self.names.append("xyzuv"[len(self.names)])
            self.parameters.append(self.parameter())
        if not any(i for i in self.program("pass").argnums) and not self.program("pass").argnums:
            self.parameters[0] = self.leaf("float64")
        for name, p in zip(self.names, self.parameters, strict=True):
            self.unpack(name, p)
        self.values: dict[str, Any] = self.run(self.lines) or {}

    # ------------------------------------------------------------------------------------------ parameters

    def leaf(self, dtype: str | None = None) -> Leaf:
        u = self.r.random()
        if dtype is None:
            dtype = (
                "float64"
                if u < 0.66
                else "float32"
                if u < 0.84
                else "int64"
                if u < 0.92
                else "bool"
            )
            if u < 0.1 and self.complex:
                dtype = "complex128"
        shape = (
            self.r.choice(SHAPES)
            if self.r.random() > 0.02
            else self.r.choice([(0,), (0, 3), (2, 0)])
        )
        python = shape == () and dtype == "float64" and self.r.random() < 0.5
        layout = "C" if self.r.random() < 0.4 else self.r.choice(list(LAYOUTS))
        return Leaf(shape, dtype, layout, python)

    def parameter(self) -> Any:
        if self.r.random() < 0.85:
            return self.leaf()
        kind = "float64" if self.r.random() < 0.7 else "float32"
        parts = [self.leaf(kind) for _ in range(2)]
        return self.r.choice([tuple(parts), list(parts), {"b": parts[0], "a": parts[1]}])

    def unpack(self, name: str, p: Any) -> None:
        if isinstance(p, dict):
            self.lines.append(f"    {name}0, {name}1 = {name}['a'], {name}['b']")
        elif not isinstance(p, Leaf):
            self.lines.append(f"    {name}0, {name}1 = {name}")

    # --------------------------------------------------------------------------------------------- running

    def program(self, *lines: str) -> Program:
        source = f"def f({', '.join(self.names)}):\n" + "\n".join(lines or ["    pass"])
        if lines == ("pass",):
            source = f"def f({', '.join(self.names)}): pass"
        return Program(self.number, source + "\n", self.parameters)

    def run(self, lines: list[str]) -> dict[str, Any] | None:
        """What names are bound to after these lines, or None if NumPy refuses or numbers are lost."""
        p = self.program(*lines, "    return dict(locals())")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                values = p.function()(*p.arguments())
            except Exception:
                return None
        if not isinstance(values, dict):
            return None
        return values if all(sound(v) for v in values.values()) else None

    def evaluate(self, text: str) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                value = eval(text, {"np": np, "tg": tg}, dict(self.values))
            except Exception:
                raise Unlucky from None
        if not sound(value) or value is None:
            raise Unlucky
        return value

    def arrays(self) -> list[str]:
        return [k for k, v in self.values.items() if isinstance(v, np.ndarray) and v.ndim]

    def numeric(self) -> list[str]:
        return [
            k
            for k, v in self.values.items()
            if isinstance(v, np.ndarray | np.number | float | complex)
        ]

    def own(self) -> list[str]:
        """Arrays that may be written: no argument's memory, and mostly none that a rule keeps."""
        safe = [self.values[k] for k in self.safe if k in self.values]
        any_array = self.r.random() < 0.1
        given = [v for k, v in self.values.items() if k in self.names or k[:-1] in self.names]
        given = [v for v in given if isinstance(v, np.ndarray)]
        return [
            k
            for k in self.arrays()
            if self.values[k].flags.writeable
            and self.values[k].dtype.kind in "fc"
            and not any(np.may_share_memory(self.values[k], g) for g in given)
            and (
                any_array
                or any(
                    np.may_share_memory(self.values[k], v)
                    for v in safe
                    if isinstance(v, np.ndarray)
                )
            )
        ]

    def fresh(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # ----------------------------------------------------------------------------------------- expressions

    def name(self) -> str:
        names = self.numeric()
        if not names:
            raise Unlucky
        # What was bound last is read most, so that statements follow from one another.
        return names[-1 - min(int(self.r.expovariate(0.5)), len(names) - 1)]

    def expression(self, depth: int = 2) -> str:
        for _ in range(6):
            text = self.drawn(depth)
            try:
                self.evaluate(text)
            except Unlucky:
                continue
            return text
        return self.name()

    def drawn(self, depth: int) -> str:
        u = self.r.random()
        if depth == 0 or u < 0.12:
            name = self.name()
            return name if self.r.random() < 0.6 else self.r.choice(VIEWS + COPIES).format(name)
        one = lambda: self.expression(depth - 1)  # noqa: E731
        if u < 0.24:
            return f"np.{self.r.choice(SMOOTH)}({one()})"
        if u < 0.36:
            return self.r.choice(GUARDED).format(one())
        if u < 0.60:
            op = self.r.choice(["+", "-", "*", "*", "+"])
            return f"({one()} {op} {one() if self.r.random() < 0.8 else self.number_text()})"
        if u < 0.70:
            extra = self.r.choice(
                ["", "", ", axis=0", ", axis=-1", ", axis=0, keepdims=True", ", axis=(0, 1)"]
            )
            return f"np.{self.r.choice(REDUCTIONS)}({one()}{extra})"
        if u < 0.75:
            return f"np.{self.r.choice(ALONG)}({one()}, axis={self.r.choice([0, -1])})"
        if u < 0.85:
            return self.r.choice(VIEWS + COPIES).format(self.bracketed(one()))
        return self.r.choice(WHOLE).format(self.bracketed(one()), self.bracketed(one()))

    def bracketed(self, text: str) -> str:
        return text if text.isidentifier() else f"({text})"

    def number_text(self) -> str:
        return self.r.choice(["0.5", "-0.7", "2", "1.3", "np.float32(0.75)", "True", "3"])

    def like(self, target: str) -> str:
        """An expression that can be stored into the target: of its shape, of one that broadcasts, or a number."""
        shape = np.shape(self.evaluate(target))
        u = self.r.random()
        if u < 0.3:
            return self.r.choice(
                ["{0} * 0.5", "np.sin({0})", "-{0}", "{0} + {0}", "{0}[::-1]", "{0}.copy()", "2"]
            ).format(target)
        if u < 0.4:
            return self.number_text()
        for _ in range(8):
            text = self.expression(1)
            if self.r.random() < 0.3:
                text = f"np.sum({text})"
            try:
                value = self.evaluate(text)
                if (
                    np.broadcast_shapes(np.shape(value), shape) == shape
                    and np.asarray(value).dtype.kind != "c"
                ):
                    return text
            except (Unlucky, ValueError):
                continue
        return f"{target} * 0.25"

    def condition(self) -> str:
        text = self.expression(1)
        value = self.evaluate(text)
        if (
            isinstance(value, bool)
            or np.asarray(value).dtype.kind not in "fi"
            or np.size(value) == 0
        ):
            raise Unlucky
        if np.ndim(value):
            text = self.r.choice(
                ["np.sum({0})", "np.max({0})", "({0}).ravel()[-1]", "({0}).ravel()[0]"]
            ).format(text)
        return f"{text} {self.r.choice(['<', '>', '>=', '<='])} {self.r.choice(['0.1', '0.5', '-0.3', '0'])}"

    # ------------------------------------------------------------------------------------------ statements

    def store(self) -> list[str]:
        own = self.own()
        if not own or self.r.random() < 0.25:
            # A new array that no rule keeps: stores into kept results are refused.
            name, to = (
                self.fresh(),
                self.r.choice(
                    ["{0} * 1.0", "{0} + 0.5", "{0}.T * 0.5", "{0}.copy()", "-{0}[::-1]"]
                ),
            )
            self.safe.append(name)
            return [f"{name} = {to.format(self.name())}"]
        v = own[-1 - min(int(self.r.expovariate(0.5)), len(own) - 1)]
        u = self.r.random()
        if u < 0.12:
            return [f"{v} {self.r.choice(['+=', '*=', '-='])} {self.like(v)}"]
        if u < 0.34:
            c = f"({v} > 0.2)"
            e = self.like(v)
            return [
                self.r.choice(
                    [
                        f"np.copyto({v}, {e})",
                        f"np.copyto({v}, {e}, where={c})",
                        f"{v}.fill({self.number_text()})",
                        f"np.putmask({v}, {c}, {e})",
                        f"np.put({v}, [0, 1], 0.5)",
                        f"np.fill_diagonal({v}, 0.3)",
                        f"np.add.at({v}, [0, 0, 1], 0.5)",
                        f"np.place({v}, {c}, [0.5, 0.25])",
                        f"{v}.flat[::2] = 0.5",
                        self.into(v, e, c),
                    ]
                )
            ]
        host = self.r.choice(HOSTS).format(v)
        place = self.r.choice(PLACES).format(host)
        op = self.r.choice(["=", "=", "+=", "*=", "-="])
        return [f"{host}{place} {op} {self.like(host + place)}"]

    def into(self, v: str, e: str, c: str) -> str:
        """A call with `out=`: refused where the result is tracked, taken where it is a constant."""
        return self.r.choice(
            [
                f"np.add({v}, {e}, out={v})",
                f"np.multiply({e}, {v}, out={v})",
                f"np.tanh({v}, out={v}[::-1])",
                f"np.sum({v}, axis=0, out={v}[0])",
                f"np.cumsum({v}, axis=0, out={v})",
                f"np.subtract({v}.T, {e}, out={v}.T)",
                f"np.multiply({v}, 0.5, out={v}, where={c})",
            ]
        )

    def binding(self) -> list[str]:
        name = self.fresh()
        u = self.r.random()
        arrays = self.arrays()
        if u < 0.3 and arrays:
            return [f"{name} = {self.r.choice(VIEWS).format(self.r.choice(arrays))}"]
        if u < 0.45 and arrays:
            return [f"{name} = {self.r.choice(COPIES).format(self.r.choice(arrays))}"]
        return [f"{name} = {self.expression(self.r.choice([1, 2, 2]))}"]

    def rebound(self) -> str:
        """A statement that keeps names and shapes: for the bodies of loops and branches."""
        v = self.name()
        if self.r.random() < 0.55:
            return self.store()[0]
        return self.r.choice(
            [
                f"{v} = {v} * {self.number_text()}",
                f"{v} = np.tanh({v})",
                f"{v} = {v} + np.sum({self.expression(1)}) * 0.1",
                f"{v} = {self.expression(1)}",
                f"{v} = 0.5 * ({v} + {self.expression(1)})",
                f"{v} = {v}[::-1]",
            ]
        )

    def branch(self) -> list[str]:
        lines = [f"if {self.condition()}:", "    " + self.rebound()]
        if self.r.random() < 0.5:
            lines += ["    " + self.rebound()]
        if self.r.random() < 0.6:
            lines += ["else:", "    " + self.rebound()]
        if self.r.random() < 0.15:
            lines[-1:] = ["    return " + self.result()]
        return lines

    def loop(self) -> list[str]:
        i = self.fresh("i")
        arrays = self.arrays()
        if not arrays:
            raise Unlucky
        a, s = self.r.choice(arrays), self.fresh("s")
        n = len(self.values[a])
        body = "    " + self.rebound()
        kind, own = self.r.randrange(9), self.own()
        exit = [
            "    if " + self.condition() + ":",
            f"        {self.r.choice(['break', 'continue'])}",
        ]
        exit = exit if self.r.random() < 0.3 else []
        if kind == 0:
            return [
                f"{s} = 0.0",
                f"for {i} in range(1, {n}):",
                f"    {s} = {s} + np.sum({a}[:{i}]) * {i}",
                *exit,
                body,
            ]
        if kind == 1:
            return [
                f"{s} = []",
                f"for {i} in {a}:",
                *exit,
                f"    {s}.append({i} * 0.5)",
                body,
                f"{s} = np.stack({s})",
            ]
        if kind == 2:
            return [
                f"{s} = 0",
                f"while {s} < {self.r.randrange(1, 4)} and {self.condition()}:",
                f"    {s} += 1",
                *exit,
                body,
            ]
        if kind == 3:
            return [
                f"for {i} in range({self.r.randrange(0, 4)}):",
                body,
                *exit,
                "    " + self.rebound(),
            ]
        if kind == 4 and own:
            v = self.r.choice(own)
            return [
                f"for {i} in range(1, {len(self.values[v])}):",
                *exit,
                f"    {v}[{i}] = {v}[{i}] + 0.5 * {v}[{i} - 1]",
                body,
            ]
        if kind == 5:
            return [
                f"{s} = {a} * 1.0",
                f"for {i}, r in enumerate({a}):",
                *exit,
                f"    {s} = {s} + {i} * np.tanh(r)",
                body,
            ]
        if kind == 6 and own:
            v = self.r.choice(own)
            return [
                f"for {i} in range(0, {len(self.values[v])}):",
                f"    {v}[{i}:] {self.r.choice(['+=', '*=', '-='])} {v}[{i}] * 0.5",
                *exit,
            ]
        if kind == 7:
            return [f"{s} = np.sum({a})", f"while abs({s}) > 0.3:", f"    {s} = {s} * 0.6", body]
        return [f"{s} = [{self.expression(1)} * {i} for {i} in range(3)]", f"{s} = {s}[0] + {s}[2]"]

    def combinator(self) -> list[str]:
        arrays = self.arrays()
        if not arrays:
            raise Unlucky
        a, b, out = self.r.choice(arrays), self.name(), self.fresh()
        k = self.r.choice(["", ", checkpoint=2", ", checkpoint=True"])
        e = self.expression(1)
        return self.r.choice(
            [
                [f"{out} = tg.checkpoint(lambda t: np.sin(t) + np.sum({b}))({a})"],
                [f"{out} = tg.checkpoint(lambda t, s: np.tanh(t) * s + {e})({a}, {b})"],
                [
                    f"{out}, {out}s = tg.scan(lambda c, s: (np.tanh(c) + np.sum(s), np.sum(c) * s), {b}, {a}{k})"
                ],
                [
                    f"{out} = tg.scan(lambda c, s: (c * 0.5 + np.sum({b}), np.sin(c) * s), 0.5, {a}{k})[1]"
                ],
                [
                    f"{out} = tg.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, np.sin(c[1]) + {a}), (0, {a}){k})[1]"
                ],
                [f"{out} = tg.fori_loop(0, 3, lambda i, c: np.tanh(c) + i * np.sum({b}), {a})"],
                [
                    f"{out} = tg.cond({self.condition()}, lambda t: np.sin(t), lambda t: 2.0 * t, {a})"
                ],
                [f"{out} = tg.vmap(lambda t: np.sin(t) * np.sum({b}))({a})"],
                [f"{out} = tg.map(lambda t: np.cos(t) + {b}, {a})"],
            ]
        )

    def helper(self) -> list[str]:
        h, out, v, w = self.fresh("h"), self.fresh(), self.name(), self.name()
        closed = self.expression(1)
        return self.r.choice(
            [
                [
                    f"def {h}(t, s=0.5, *rest, **more):",
                    f"    return np.sin(t) * s + np.sum({closed})",
                    f"{out} = {h}({v}, s={w})",
                ],
                [f"{h} = lambda t: t * {closed}", f"{out} = {h}({v})"],
                [
                    f"def {h}(t):",
                    "    u = t * 1.0",
                    "    u += 1",
                    "    return u, {'k': t * 0.5}",
                    f"{out}, {h}d = {h}({v})",
                    f"{out} = {out} + {h}d['k']",
                ],
                [
                    f"{h} = {{'p': {v}, 'q': [{w}, {closed}]}}",
                    f"{out} = {h}['p'] * 2 + {h}['q'][1]",
                ],
                [f"{h} = ({v}, {w})", f"{out}, {w} = {h}[::-1]"],
                [f"{out} = sum(np.sum(t) * k for k, t in enumerate([{v}, {w}, {closed}]))"],
                [
                    f"def {h}(t, n):",
                    f"    return t if n == 0 else {h}(np.sin(t) + 0.1 * n, n - 1)",
                    f"{out} = {h}({v}, 3)",
                ],
                [f"{out} = {v} if {self.condition()} else {w}"],
            ]
        )

    def result(self) -> str:
        names = [n for n in self.numeric() if n not in self.names] or self.numeric()
        a, b = names[-1], self.r.choice(names)
        c = self.r.choice(self.numeric())
        last = ", ".join(dict.fromkeys(names[-3:] + [c]))
        return self.r.choice(
            [
                last,
                last,
                f"{a}, {b}",
                f"{{'b': {a}, 'a': [{last}]}}",
                f"[{a}, ({last})]",
                f"np.sum({a}) + np.sum({b}) * np.sum({c})",
            ]
        )

    def add(self, kind: str) -> None:
        for _ in range(8):
            try:
                new = ["    " + line for line in getattr(self, kind)()]
            except Unlucky:
                continue
            values = self.run(self.lines + new)
            if values is not None:
                self.lines += new
                self.values = values
                return

    def write(self) -> Program:
        kinds = (
            ["binding"] * 8
            + ["store"] * 9
            + ["branch"] * 2
            + ["loop"] * 2
            + ["helper"] * 2
            + ["combinator"]
        )
        for _ in range(self.r.choice([2, 3, 4, 5, 6, 8])):
            self.add(self.r.choice(kinds))
        return self.program(*self.lines, f"    return {self.result()}")


def sound(value: Any) -> bool:
    if isinstance(value, dict):
        return all(sound(v) for v in value.values())
    if isinstance(value, tuple | list):
        return all(sound(v) for v in value)
    if isinstance(value, np.ndarray | np.generic | float | int | complex):
        array = np.asarray(value)
        if array.dtype.kind not in "fcib" or array.size > SIZE or array.ndim > 4:
            return False
        return bool(np.all(np.isfinite(array)) and np.max(np.abs(array), initial=0) <= LARGEST)
    return True


def write(number: int) -> Program:
    """The program of this number; numbers whose program is too short are used all the same."""
    return Writer(number).write()
