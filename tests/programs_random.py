"""Random programs of overlapping regions for the tests of the program form, and their derivatives by complex steps.

A program is the text of a function of two vectors, a matrix and a number of turns; it stores into all three in place, by slices, by
elements in loops, and through products, sums and maxima. Python itself runs it on complex numbers, which gives one directional
derivative for each array, to the last digits.
"""

import itertools
import linecache
import random

import numpy as np
from numba.extending import register_jitable

_files = itertools.count()


@register_jitable
def less(a, b):
    return a < b


@register_jitable
def cut(a):
    """A float cut off to a whole number."""
    return int(a)


def defined(text, **scope):
    """The function `f` of a text, its source where `inspect` finds it."""
    file = f"<random program {next(_files)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = {"np": np, "less": less, "cut": cut, **scope}
    exec(compile(text, file, "exec"), space)
    return space["f"]


def first_of(test):
    """NumPy's maximum or minimum by the real parts."""
    return lambda a, b: np.where(test(np.real(a), np.real(b)), a, b)


class _Linear:
    """`np.linalg` without conjugates and absolute values, which complex steps do not pass."""

    solve, inv, det = map(staticmethod, (np.linalg.solve, np.linalg.inv, np.linalg.det))

    def slogdet(self, a):
        d = np.linalg.det(a)
        return np.sign(d.real), np.log(d * np.sign(d.real))

    def cholesky(self, a):
        x = np.zeros_like(a)
        for i in range(len(a)):
            for j in range(i + 1):
                rest = a[i, j] - np.sum(x[i, :j] * x[j, :j])
                x[i, j] = np.sqrt(rest) if i == j else rest / x[j, j]
        return x


class _Complex:
    """NumPy on complex numbers whose imaginary parts are tiny: what orders numbers goes by the real parts."""

    linalg = _Linear()
    maximum = staticmethod(first_of(np.greater))
    minimum = staticmethod(first_of(np.less))

    def __getattr__(self, name):
        return getattr(np, name)

    def max(self, a):
        return a.reshape(-1)[np.argmax(a.real)]

    def min(self, a):
        return a.reshape(-1)[np.argmin(a.real)]

    def abs(self, a):
        return np.where(np.real(a) < 0, -a, a)

    def where(self, c, a, b):
        return np.where(c, a, b)

    def zeros(self, shape, dtype=complex):
        return np.zeros(shape, dtype)

    def ones(self, shape):
        return np.ones(shape, complex)

    def empty(self, shape):
        return np.full(shape, np.nan, complex)


def floats(a):
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def direction(a):
    return np.cos(np.arange(a.size)).reshape(a.shape)


def slopes(text, args):
    """Value, and the derivative along each array's `direction`."""
    plain = defined(
        text,
        np=_Complex(),
        max=first_of(np.greater),
        min=first_of(np.less),
        less=lambda a, b: np.real(a) < np.real(b),
        cut=lambda a: int(np.real(a)),
    )
    found = []
    out = np.nan
    for i, a in enumerate(args):
        if floats(a):
            at = [b.astype(complex) if floats(b) else b for b in args]
            at[i] += 1e-30j * direction(a)
            out = plain(*at)
            found.append(np.imag(out) / 1e-30)
    return np.real(out), found


class Author:
    """Writes one program; sizes are at least 5."""

    parameters = "x, y, m, T"

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []

    def one(self, *choices):
        return self.random.choice(choices)

    def index(self, loops):
        if not loops or self.random.random() < 0.2:
            return self.one("0", "1", "-1", "n - 2", "2")
        v = self.one(*loops)
        return self.one(v, v, v + " - 1", v + " + 1", f"n - {v} - 1")

    def element(self, loops):
        kind = self.random.random()
        if kind < 0.1:
            return "s"
        if kind < 0.4:
            return f"m[{self.index(loops)}, {self.index(loops)}]"
        return f"{self.one('x', 'y', 'z')}[{self.index(loops)}]"

    def row(self, loops):
        kind = self.random.random()
        if kind < 0.25:
            return f"m[{self.index(loops)}, {self.one('1:-1', '2:', ':-2')}]"
        return self.one("x", "y", "z") + self.one("[1:-1]", "[:-2]", "[2:]", "[1:-1][::-1]", "[2:]")

    def block(self):
        if self.random.random() < 0.3:
            return self.one("x[1:-1]", "z[2:]", "y[:-2][:, None]", "x[1:-1][:, None]")
        return "m" + self.one(
            "[1:-1, 1:-1]", "[2:, :-2]", "[:-2, 1:-1]", "[1:-1, 2:].T", "[1:-1, 1:-1]"
        )

    def formula(self, operand):
        a, b, c = operand(), operand(), operand()
        return self.one(
            f"0.6 * {a} - 0.3 * {b}",
            f"0.5 * {a} * {b} + 0.1 * {c}",
            f"{a} / (2.0 + {b} * {b})",
            f"0.4 * np.exp(-{a} * {a}) + 0.2 * {b}",
            f"np.cos({a}) * {b}",
            f"np.minimum({a}, 0.8 * {b}) + 0.1 * {c}",
            f"np.sqrt(1.0 + {a} * {a})",
            f"0.7 * {a}",
        )

    def scalars(self, loops, pad):
        target = self.one("x", "y", "z", "m", "s", "t")
        value = self.formula(lambda: self.element(loops))
        if target == "t":
            self.lines.append(f"{pad}t = {value}")
            self.lines.append(f"{pad}{self.one('x', 'y')}[{self.index(loops)}] += 0.3 * t * t")
            return
        if target == "m":
            target = f"m[{self.index(loops)}, {self.index(loops)}]"
        elif target != "s":
            target = f"{target}[{self.index(loops)}]"
        self.lines.append(f"{pad}{target} {self.one('=', '=', '+=', '-=')} {value}")

    def arrays(self, loops, pad):
        kind = self.random.random()
        if kind < 0.4:
            target, value = (
                self.one("x", "y", "z") + self.one("[1:-1]", "[2:]", "[:-2]"),
                self.formula(lambda: self.row(loops)),
            )
        elif kind < 0.75:
            target, value = (
                "m" + self.one("[1:-1, 1:-1]", "[2:, :-2]", "[:-2, 1:-1]"),
                self.formula(self.block),
            )
        else:
            target, value = self.one(
                ("x[:]", "0.2 * (m @ y) + 0.1 * x"),
                ("y[:]", "0.2 * np.sum(m * x, axis=0)"),
                ("m[:]", "0.3 * m.T + 0.1 * x"),
                ("z[:]", "x * np.max(y)"),
                ("m[0]", "y / (3.0 + np.sum(m[1] * m[1]))"),
                ("s", "0.3 * np.dot(x, z) + np.mean(m[1:, 0])"),
            )
        self.lines.append(f"{pad}{target} = {value}")

    def branch(self, loops, pad):
        """By values, or by variables of loops."""
        test = f"less({self.element(loops)}, {self.one('0.3', self.element(loops))})"
        if loops and self.random.random() < 0.6:
            v, w = self.one(*loops), self.one(*loops, "2")
            test = self.one(
                f"{v} != {w}",
                f"{v} > 1",
                f"{v} < {w}",
                f"{w} <= {v}",
                f"{v} == n - 2",
                f"{v} % 2 == 0",
                f"{v} + {w} < n",
                f"{v} >= 2 and x[{v} - 2] != y[{v}]",
                f"{v} == 2 or {test}",
            )
        self.lines.append(f"{pad}if {test}:")
        self.scalars(loops, pad + "    ")
        if self.random.random() < 0.3:
            self.scalars(loops, pad + "    ")
        if self.random.random() < 0.5:
            self.lines.append(f"{pad}else:")
            self.scalars(loops, pad + "    ")

    def body(self, loops, pad, depth):
        for _ in range(self.random.randint(1, 3 if depth else 2)):
            if self.random.random() < 0.2:
                self.branch(loops, pad)
                continue
            kind = self.random.random()
            if depth and kind < 0.55:
                v = "ijk"[len(loops)]
                last = loops[-1] if loops else "1"
                lo, hi = self.ends(last)
                self.lines.append(
                    f"{pad}for {v} in range({lo}, {hi}):"
                    if self.random.random() < 0.7
                    else f"{pad}for {v} in range({hi} - 1, {lo} - 1, -1):"
                )
                self.body([*loops, v], pad + "    ", depth - 1)
            elif kind < 0.75:
                self.arrays(loops, pad)
            else:
                self.scalars(loops, pad)

    def ends(self, last):
        """The bounds of a loop within one whose variable is `last`."""
        return self.one(("1", "n - 1"), ("1", "n - 1"), (last, "n - 1"), ("1", last))

    def text(self):
        timed = self.random.random() < 0.5
        self.body([], "        " if timed else "    ", 2)
        head = f"def f({self.parameters}):\n    n = x.shape[0]\n    z = x * y\n    s = x[0]\n"
        turns = "    for turn in range(T):\n" if timed else ""
        return (
            head
            + turns
            + "\n".join(self.lines)
            + "\n    return np.sum(x * x) + np.sum(y * z) + np.sum(m * m) + s\n"
        )


class Indexed(Author):
    """Indices and bounds of loops are read from arrays, too: `k` is in no order and has ties, `p` grows, as the starts of rows do."""

    parameters = "x, y, m, T, k, p"

    def index(self, loops):
        if loops and self.random.random() < 0.4:
            place = self.one(*loops)
            place = self.one(place, place + " - 1", f"k[{place}]")
            return self.one(f"k[{place}]", f"k[{place}] - 1", f"n - k[{place}] - 1")
        return super().index(loops)

    def ends(self, last):
        if self.random.random() < 0.4:
            return self.one((f"p[{last}]", f"p[{last} + 1]"), ("1", f"k[{last}]"))
        return super().ends(last)


class Leaving(Author):
    """Loops that end by a condition, too, and branches with arrays and loops in them."""

    whiles = 0

    def condition(self, loops):
        return f"less({self.element(loops)}, {self.one('0.3', '0.8', self.element(loops))})"

    def branch(self, loops, pad):
        kind = self.random.random()
        if loops and kind < 0.3:
            self.lines.append(f"{pad}if {self.condition(loops)}:")
            if self.random.random() < 0.5:
                self.scalars(loops, pad + "    ")
            self.lines.append(f"{pad}    {self.one('break', 'break', 'continue')}")
        elif kind < 0.6:
            self.lines.append(f"{pad}if {self.condition(loops)}:")
            self.arrays(loops, pad + "    ")
            if self.random.random() < 0.5:
                self.lines.append(f"{pad}else:")
                self.repeated(loops, pad + "    ", 0)
        else:
            super().branch(loops, pad)

    def repeated(self, loops, pad, depth):
        """A `while` loop of few iterations."""
        q = f"q{self.whiles}"
        self.whiles += 1
        test = self.condition(loops)
        self.lines.append(f"{pad}{q} = 0")
        test = self.one(
            f"{q} < 3 and {test}", f"{test} and {q} < 4", f"{q} < 2", f"{q} < 3 and not {test}"
        )
        self.lines.append(f"{pad}while {test}:")
        self.lines.append(f"{pad}    {q} += 1")
        super().body(loops, pad + "    ", depth)
        if self.random.random() < 0.3:
            self.lines.append(f"{pad}    s += 0.1 * {q} * x[{q}]")
        if self.random.random() < 0.3:
            self.lines.append(f"{pad}    if {self.condition(loops)}:")
            self.lines.append(f"{pad}        break")
            self.scalars(loops, pad + "    ")
        if self.random.random() < 0.2:
            self.lines.append(f"{pad}s += 0.1 * {q} * x[0]")

    def body(self, loops, pad, depth):
        super().body(loops, pad, depth)
        if self.whiles < 2 and self.random.random() < 0.7:
            self.repeated(loops, pad, 0)


class Computed(Leaving):
    """Whole numbers that the program computes, alone (`c`) and in an array (`w`), as indices, bounds of loops and conditions."""

    def whole(self, loops):
        """A whole number from 0 to below n."""
        e = self.element(loops) if self.random.random() < 0.5 else "x[c]"
        return self.one(
            "c",
            "c",
            f"w[{self.one('0', 'c', 'n - 1', *loops)}]",
            f"cut(2.0 * abs({e})) % n",
            f"(c + {self.one('1', '3', *loops)}) % n",
            f"(3 * w[{self.one('1', *loops)}] + c) % n",
            "min(c + 1, n - 1)",
            "max(c - 2, 0)",
            "(2 * n - c) // 3",
        )

    def index(self, loops):
        if self.random.random() < 0.35:
            i = self.whole(loops) if self.random.random() < 0.7 else "c"
            return self.one(i, i, f"n - 1 - {i}", f"-1 - {i}", f"{i} - n" if i == "c" else i)
        return super().index(loops)

    def scalars(self, loops, pad):
        kind, put = self.random.random(), self.lines.append
        if kind < 0.15:
            return put(f"{pad}c = {self.whole(loops)}")
        if kind < 0.25:
            return put(f"{pad}w[{self.one('0', 'c', 'n - 1', *loops)}] = {self.whole(loops)}")
        if kind < 0.32:
            return put(f"{pad}if c < n - 1 and {self.condition(loops)}:\n{pad}    c += 1")
        if kind < 0.4:
            a, b = self.one("x", "y", "z"), self.one("x", "y", "z")
            c = self.one("c // 2", "(c + 1) // 3", f"w[{self.one('0', *loops)}] // 2")
            return put(f"{pad}{a}[1:3] = 0.5 * {b}[{c} : {c} + 2] + 0.2 * {a}[1:3]")
        if kind < 0.46:
            return put(f"{pad}z[:] = 0.4 * {self.one('x', 'y', 'm[0]')}[w] + 0.3 * z")
        return super().scalars(loops, pad)

    def branch(self, loops, pad):
        super().branch(loops, pad)
        if loops and self.lines[-1].endswith(" break") and self.random.random() < 0.7:
            self.lines.insert(-1, f"{pad}    c = {self.one(*loops)}")

    def repeated(self, loops, pad, depth):
        kind, put = self.random.random(), self.lines.append
        if kind < 0.4:
            v = "uvw"[self.whiles] * 2
            self.whiles += 1
            lo, hi = self.one(("0", "c"), ("c", "n"), (f"w[{self.one('0', 'c', *loops)}]", "n"))
            put(f"{pad}for {v} in range({lo}, {hi}):")
            return self.scalars([*loops, v], pad + "    ")
        if kind < 0.6:
            a, b = self.element([*loops]), self.one("x[c]", "y[c]", "y[w[c]]")
            self.whiles += 1
            put(f"{pad}while c < n - 1 and less({b}, {a}):")
            put(f"{pad}    c += 1")
            return put(f"{pad}    s += 0.1 * x[c]")
        return super().repeated(loops, pad, depth)

    def ends(self, last):
        if self.random.random() < 0.3:
            return self.one(("c", "n - 1"), ("1", "c"), ("c // 2", "w[0] + 1"))
        return super().ends(last)

    def text(self):
        made = self.one(
            "np.zeros(n, np.int64)", "np.arange(n)", "(3.0 * np.abs(y)).astype(np.int64)"
        )
        made = "np.arange(n)" if "astype" in made else made
        head, mark, rest = super().text().partition("    s = x[0]\n")
        return f"{head}{mark}    c = {self.one('1', '2', 'n // 2')}\n    w = {made}\n{rest}"


class Bordered(Leaving):
    """Loops over whole arrays and windows, whose indices are wrapped, clamped or reflected at borders, and arrays written in pieces."""

    def ends(self, last):
        return self.one(
            ("0", "n"),
            ("0", "n"),
            ("0", "n"),
            ("-2", "3"),
            ("1", "n"),
            (last, "n"),
            (f"max(0, {last} - 2)", f"min(n, {last} + 2)"),
        )

    def index(self, loops):
        """A place from -n to below n, whatever the variables of the loops are."""
        if not loops or self.random.random() < 0.1:
            return super().index([])
        v, k = self.one(*loops), self.one("1", "2", "-1", *loops)
        return self.one(
            f"({v} + {k}) % n",
            f"({v} - {k}) % n",
            f"min(max({v} + {k}, 0), n - 1)",
            f"min(abs({v} - {k}), n - 1)",
            f"max(-n, min({v} - 1, n - 1))",
            f"({v} if 0 <= {v} < n else 0)",
            f"({v} - 1 if {v} > 0 and {v} < n else n - 1)",
            self.one("a", "b"),
        )

    def scalars(self, loops, pad):
        kind, put = self.random.random(), self.lines.append
        name = self.one("a", "b")
        if kind < 0.2 and loops:
            return put(f"{pad}{name} = {self.index(loops)}")
        if kind < 0.3 and loops:
            v = self.one(*loops)
            put(f"{pad}{name} = {v} - 1")
            put(f"{pad}if {name} < 0:")
            put(f"{pad}    {name} = {self.one('n - 1', '0', '1')}")
            return put(f"{pad}elif {name} >= n:\n{pad}    {name} = n - 1") if v != "i" else None
        if kind < 0.4 and len(loops) > 1:
            v, w = loops[-2:]
            put(f"{pad}if 0 <= {v} + {w} < n:")
            return put(f"{pad}    s += 0.1 * x[{v} + {w}] * {self.element(loops)}")
        if kind < 0.5:
            put(f"{pad}z[0] = {self.element(loops)}")
            put(f"{pad}z[1:-1] = 0.5 * {self.one('x', 'y')}[2:] + 0.2 * y[:-2]")
            return put(f"{pad}z[-1] = 0.3 * {self.element(loops)}")
        return super().scalars(loops, pad)

    def text(self):
        head, mark, rest = super().text().partition("    s = x[0]\n")
        return f"{head}{mark}    a, b = 1, n - 1\n{rest}"


class Together(Author):
    """Statements that bind several names or elements at once, each from what was before, and names that exchange their arrays."""

    def scalars(self, loops, pad):
        kind = self.random.random()
        if kind < 0.4:
            return super().scalars(loops, pad)
        names = self.one("s, r", "r, s", "r, s, q")
        targets = names.split(", ")
        if loops and kind > 0.7:
            targets[0] = f"{self.one('x', 'y', 'z')}[{self.index(loops)}]"
        operand = lambda: self.one("s", "r", "q", self.element(loops), self.element(loops))  # noqa: E731
        values = [self.formula(operand) for _ in targets]
        return self.lines.append(f"{pad}{', '.join(targets)} = {', '.join(values)}")

    def arrays(self, loops, pad):
        kind = self.random.random()
        if kind < 0.6:
            return super().arrays(loops, pad)
        parts = self.one("x[1:-1], y[1:-1]", "z[2:], x[:-2]", "y[:-2], z[1:-1]")
        first, second = (self.formula(lambda: self.row(loops)) for _ in range(2))
        return self.lines.append(f"{pad}{parts} = {first}, {second}")

    def text(self):
        text = super().text().replace("    s = x[0]\n", "    s = x[0]\n    r, q = y[1], m[1, 0]\n")
        head, turns, body = text.partition("    for turn in range(T):\n")
        if turns and self.random.random() < 0.6:
            head += "    x, y, z = x.copy(), y.copy(), z.copy()\n"
            swap = self.one("x, z = z, x", "x, y, z = y, z, x", "s, r = r, s", "r, q, s = s, r, q")
            body = body.replace("    return", f"        {swap}\n    return")
        return head + turns + body.replace("+ s\n", "+ s - r + 2.0 * q * q\n")


class Assorted(Together):
    """What else the form knows, put together at random: functions of whole arrays, masks, views that have names, loops over elements."""

    names = 0

    def vector(self):
        """A formula of n elements."""
        a, b = self.one("x", "y", "z"), self.one("x", "y", "z")
        return self.one(
            f"{a} * {b}",
            f"np.roll({a}, {self.one('1', '-1', '2')}) * 0.5 + {b}",
            f"np.flip({a}) - 0.2 * {b}",
            f"0.3 * np.cumsum({a})",
            f"np.concatenate(({a}[1:], {b}[:1]))",
            f"np.append({a}[:-1] * {b}[1:], s)",
            f"np.where({a} > {b}, {a}, 0.5 * {b})",
            f"np.where({a} > 0.4, {a} * s, r)",
            f"{a} / (1.0 + np.sum({b} ** 2))",
            f"np.sum(m, axis={self.one('0', '1')}) * 0.2 + {a}",
            f"np.diag(m) * {a}",
            f"0.3 * (m @ {a}) - {b}",
            f"0.3 * ({a} @ m) * {b}",
            f"m[{self.one('0', '1', 'n - 1')}] * {a}",
            f"m[:, {self.one('0', '1', 'n - 1')}] + {a}",
            f"{a} * np.arange(n) / n",
            f"np.maximum({a}, {b}) * np.minimum({a}, s)",
            f"np.full(n, s) * {a}",
            f"np.exp(-({a} - {b}) ** 2)",
            f"np.linspace({a}[0], {b}[1], n)",
            f"np.linalg.solve(0.3 * m + 2.0 * np.eye(n), {a})",
            f"np.linalg.inv(0.2 * m + (2.0 + s * s) * np.eye(n))[:, {self.one('0', 'n - 1')}] * {a}",
        )

    def number(self):
        a, b = self.one("x", "y", "z"), self.one("x", "y", "z")
        return self.one(
            f"np.dot({a}, {b}) * 0.3",
            f"np.sum({a}[{a} > {b}])",
            f"np.mean({a}[1:] * {b}[:-1])",
            f"np.max({a}) - np.min({b})",
            "np.trace(m)",
            "np.sum(m[1:, 1:] * m[:-1, :-1])",
            f"np.sum(np.abs({a} - {b}))",
            f"np.sqrt(1.0 + np.sum({a} * {a}))",
            f"np.prod(0.5 + 0.1 * {a})",
            f"{a}[n // 2] * {b}[-1]",
            f"{a}[np.argmax({b})] * {b}[np.argmin({a})]",
            f"{a}[0] * np.sum({b} > 0.2) + {b}[1] * (s < 0.5)",
            "0.1 * np.linalg.det(m[:3, :3] + 2.0 * np.eye(3))",
            "np.linalg.slogdet(0.3 * m + 3.0 * np.eye(n))[1]",
        )

    def arrays(self, loops, pad):
        kind = self.random.random()
        if kind < 0.35:
            return super().arrays(loops, pad)
        a, put = self.one("x", "y", "z"), self.lines.append
        if kind > 0.97:
            put(
                f"{pad}if {self.one('s > 1e9', 'np.any(x != x)', f'{a}[0] > 1e9', 'np.all(m > 1e9)')}:"
            )
            return put(f"{pad}    raise ValueError('large')")
        if kind < 0.5:
            return put(f"{pad}{a}[:] = {self.vector()}")
        if kind < 0.6:
            return put(f"{pad}{self.one('s', 'r', 'q')} = {self.number()}")
        if kind < 0.68:
            return put(
                f"{pad}m[:] = {self.one('0.5 * m.T', 'm * x', 'np.outer(x, y) + m', '0.3 * (m @ m.T)', 'np.linalg.cholesky(0.1 * (m @ m.T) + np.eye(n))', 'np.linalg.solve(0.2 * m.T + 2.0 * np.eye(n), m)', 'm[::-1] * 0.7', 'm - np.eye(n) * s')}"
            )
        if kind < 0.78:
            mask = self.one(f"{a} > {self.one('0.3', 'y', 's')}", f"np.abs({a}) < 0.8")
            value = self.one("s", "r * 0.5", f"0.5 * {a}[{mask}]")
            return put(
                f"{pad}{a}[{mask}] = {value}"
                if self.random.random() < 0.6
                else f"{pad}{a}[{mask}] *= 0.9"
            )
        name = f"v{self.names}"
        self.names += 1
        if kind < 0.9:
            part = self.one("[1:]", "[::-1]", "[:-1]", "[::2]", "[1::2]")
            whole = self.one(f"{a}{part}", f"{a}{part}", f"({self.vector()}){part}")
            put(f"{pad}{name} = {whole}")
            put(f"{pad}{name}[{self.one('0', '1', '-1')}] = {self.element(loops)}")
            if self.random.random() < 0.5:
                put(
                    f"{pad}{name}[1:] {self.one('+=', '*=', '=')} {self.one('0.3', 's')} * {name}[:-1]"
                )
            return put(f"{pad}{self.one('s', 'r')} = 0.5 * np.sum({name} * {name})")
        v = f"e{self.names}"
        put(f"{pad}{name} = np.{self.one('zeros(n)', 'ones(n)', 'empty(n)')}")
        put(f"{pad}for {v} in range(n):")
        put(
            f"{pad}    {name}[{v}] = {self.one(f'x[{v}] * s', f'{a}[n - 1 - {v}]', f'm[{v}, {v}] * {a}[{v}]', f'np.sum(m[{v}, :{v}])')}"
        )
        return put(f"{pad}{a}[:] = {self.one(name, f'{name} * {a}', f'np.tanh({name})')}")


def arguments(seed, least=5):
    r, n = np.random.default_rng(seed), least + seed % 3
    return [r.uniform(0.5, 1.5, n), r.uniform(-1, 1, n), r.uniform(-1, 1, (n, n)), 2]


def indices(seed, n):
    """The arrays that `Indexed` programs read indices from."""
    r, dtype = np.random.default_rng(seed), (np.int64, np.int32)[seed % 2]
    k, p = r.integers(1, n - 1, (2, n))
    return [k.astype(dtype), np.sort(p).astype(dtype)]
