"""Functions that make objects of the user's classes, or call methods by `super()`: their joins are tracked, and they go the way they go
without a derivative. Values are those of the plain function; derivatives are judged by central differences.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import functools
import gc
import pickle
import sys
import typing
import weakref

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.face.adoption import adoptions


class Pendulum:
    made = 0
    g = 9.81

    def __init__(self, length, mass=1.0):
        Pendulum.made += 1
        self.length, self.mass = length, mass
        self.state = np.array([0.3, 0.1 * length])

    def slope(self, t, y):
        return np.array([y[1], -self.g / self.length * np.sin(y[0])])

    def filled(self, x):
        rows = np.zeros(2)
        rows[0] = x
        rows[1] = self.length
        return rows

    @staticmethod
    def turned(a):
        return np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])

    @classmethod
    def of(cls, length):
        return cls(np.array([length, length]).sum())

    @property
    def pair(self):
        return np.array([self.length, self.mass * self.length])

    @pair.setter
    def pair(self, x):
        self.length = np.array([x, x])[1]

    @functools.cached_property
    def matrix(self):
        return np.array([[self.length, 1.0], [0.0, self.length]])

    def __call__(self, x):
        return np.sum(np.array([self.length * x, x]))

    def __add__(self, other):
        return type(self)(self.length + other.length)

    def __getitem__(self, i):
        return np.array([self.length, 2 * self.length])[i]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def rows(self):
        for k in range(3):
            yield np.array([self.length * k])

    def __eq__(self, other):
        return type(other) is type(self) and bool(other.length == self.length)

    def __hash__(self):
        return hash(self.mass)


class Damped(Pendulum):
    def __init__(self, length, c=0.1):
        super().__init__(length)
        self.c = c

    def slope(self, t, y):
        return super().slope(t, y) - np.array([0 * y[1], self.c * y[1]])

    @property
    def pair(self):
        return super().pair * 2

    @classmethod
    def of(cls, length):
        return super().of(length)


class Explicit(Damped):
    def __init__(self, length):
        Damped.__init__(self, length)

    def slope(self, t, y):
        return 2 * super(Explicit, self).slope(t, y)  # noqa: UP008  the long form is what is tested


class Left:
    def names(self):
        return ["Left"]

    def value(self, x):
        return np.array([x])


class Middle(Left):
    def names(self):
        return ["Middle", *super().names()]

    def value(self, x):
        return np.array([x, *super().value(x)])


class Right(Left):
    def names(self):
        return ["Right", *super().names()]

    def value(self, x):
        return np.array([2 * x, *super().value(x)])


class Diamond(Middle, Right):
    def names(self):
        return ["Diamond", *super().names()]

    def value(self, x):
        return np.array([x * x, *super().value(x)])


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return np.prod(np.array([self.side, self.side]))


@dataclasses.dataclass
class Pair:
    a: float
    v: object = None

    def __post_init__(self):
        self.v = np.array([self.a, self.a**2])


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: float
    b: float = 1.0

    def both(self):
        return np.array([self.a, self.b])

    def again(self):
        return type(self)(self.a * 3).both()

    def of_class(self):
        return self.__class__(self.a * 3).both()

    def less(self, x):
        return dataclasses.replace(self, a=x).both()


@dataclasses.dataclass(slots=True)
class Slotted:
    a: float

    def both(self):
        return np.array([self.a, 1.0])


class Point(typing.NamedTuple):
    x: float
    y: float

    def norm(self):
        return np.sum(np.array([self.x, self.y]) ** 2)


class Rows(list):
    def joined(self):
        return np.array([*self])


@functools.singledispatch
def weight(x):
    return 1.0


@weight.register
def _(x: Pendulum):
    return 7.0


@weight.register
def _(x: Explicit):
    return 9.0


TABLE = {Pendulum: 2.0, Damped: 3.0}
FIXED = Damped(1.5)
FROZEN = Frozen(2.0)


def local(x):
    class Local(Damped):
        def slope(self, t, y):
            return super().slope(t, y) * 3

    made = Local(x)
    return np.sum(made.slope(0.0, made.state)) * (
        2.0 if isinstance(made, Local) and isinstance(made, Pendulum) else 3.0
    )


def matched(x):
    match Explicit(x):
        case Point():
            return x
        case Damped(length=found):
            return np.sum(np.array([found, found])) * 3
        case _:
            return 5 * x


def kinds(x):
    c, a = Explicit(x), Pendulum(1.0)
    facts = (
        isinstance(c, Pendulum), isinstance(a, Damped), issubclass(type(c), Pendulum), issubclass(Explicit, Damped),
        isinstance(c, (Damped, Point)), type(c) is Explicit, type(c) is not type(a), type(a) is Damped, c.__class__ is a.__class__,
        isinstance(FIXED, Pendulum), type(FIXED) is Damped, FIXED.__class__ is Damped(1.5).__class__, Damped(1.5) == FIXED, c == FIXED,
        c in (FIXED, c), len({a, a, Pendulum(2.0)}) == 2,
    )  # fmt: skip
    return np.sum(c.slope(0.0, c.state)) * sum(2**k for k, fact in enumerate(facts) if fact)


def copies(x):
    a = Pendulum(x)
    b = copy.copy(a)
    b.length = 2 * x
    return np.sum(a.pair) * np.sum(b.pair) + np.sum(copy.deepcopy(b).pair)


def counted(x):
    before = Pendulum.made
    Pendulum(x), Damped(x)
    return np.sum(Pendulum(x).pair) * (Pendulum.made - before)


def euler(x):
    return np.array([x, x])


def midpoint(x):
    return np.array([x, 2 * x])


class Method:
    """Something that is compared with what a name means."""

    def __init__(self, of):
        self.of = of

    def total(self, x):
        return np.sum(np.array([x, x, x]) * self.of)


EULER, OF_CLASS, OF_METHOD, OF_OBJECT = (
    Method(euler),
    Method(Square),
    Method(FIXED.turned),
    Method(FIXED),
)


def by_identity(x):
    return np.sum(euler(x)) if EULER.of is euler else 10 * np.sum(midpoint(x))


def by_equality(x):
    return np.sum(euler(x)) if EULER.of == euler else 10 * np.sum(midpoint(x))


def by_membership(x):
    return np.sum(euler(x)) if EULER.of in (midpoint, euler) else 10 * np.sum(midpoint(x))


def by_class(x):
    return Square(x).area() if OF_CLASS.of is Square else 10 * np.sum(np.array([x, x]))


def by_object(x):
    return np.sum(FIXED.turned(x)) if OF_OBJECT.of is FIXED else 10 * np.sum(np.array([x, x]))


def by_method(x):
    return np.sum(FIXED.turned(x)) if OF_METHOD.of == FIXED.turned else 10 * np.sum(euler(x))


MADE = {
    "steps": lambda x: functools.reduce(lambda y, _: y + 0.1 * Damped(x).slope(0.0, y), range(4), Damped(x).state)[0],
    "buffers": lambda x: np.sum(Pendulum(x).filled(x * x) ** 2),
    "static": lambda x: np.sum(Pendulum.turned(x)) + np.sum(Pendulum(x).turned(x)[0]),
    "class methods": lambda x: np.sum(Pendulum.of(x).pair) * np.sum(Damped.of(x).pair),
    "properties": lambda x: np.sum(Pendulum(x).pair) * Damped(x).pair[0],
    "cached": lambda x: np.sum(Pendulum(x).matrix),
    "called": lambda x: Pendulum(x)(x),
    "operators": lambda x: np.sum((Pendulum(x) + Damped(2 * x)).pair) * Pendulum(x)[1],
    "super": lambda x: np.sum(Explicit(x).slope(0.0, Explicit(x).state)),
    "diamond": lambda x: np.sum(Diamond().value(x) ** 2) * len("".join(Diamond().names())),
    "abstract": lambda x: Square(x).area() * (2.0 if isinstance(Square(1.0), Shape) else 3.0),
    "dataclass": lambda x: np.sum(Pair(x).v),
    "frozen": lambda x: np.sum(Frozen(x).both()) * (2.0 if Frozen(x) == Frozen(x) else 3.0) * (5.0 if Frozen(1.0) < Frozen(2.0) else 7.0),
    "again": lambda x: np.sum(Frozen(x).again()),
    "of __class__": lambda x: np.sum(Frozen(x).of_class()),
    "replaced": lambda x: np.sum(dataclasses.replace(Frozen(x), b=2.0).both()) + np.sum(FROZEN.less(x)),
    "slots": lambda x: np.sum(Slotted(x).both() ** 2),
    "dispatch": lambda x: weight(Damped(x)) * np.sum(Damped(x).pair) + weight(Explicit(x)) * x,
    "table": lambda x: TABLE[type(Pendulum(x))] * np.sum(Pendulum(x).pair) + TABLE.get(Damped(x).__class__, 99.0) * x,
    "mapped": lambda x: sum(np.sum(p.pair) for p in map(Pendulum, [x, 2 * x])),
    "rows": lambda x: sum(np.sum(row) for row in Pendulum(x).rows()),
    "unbound": lambda x: np.sum(Pendulum.slope(Explicit(x), 0.0, Explicit(x).state)),
    "a fixed object's super": lambda x: np.sum(FIXED.slope(0.0, np.array([x, 2 * x]))),
    "a fixed object's static": lambda x: np.sum(FIXED.turned(x)),
    "local": local, "matched": matched, "kinds": kinds, "copies": copies, "counted": counted,
}  # fmt: skip


def slope_of(f, x, h=1e-6):
    return (f(x + h) - f(x - h)) / (2 * h)


@pytest.mark.parametrize("f", MADE.values(), ids=MADE)
def test_objects_made_inside(f):
    expected = slope_of(f, 0.7)
    value, slope = tg.value_and_grad(f)(0.7)
    assert value == pytest.approx(f(0.7), rel=1e-14)
    assert slope == pytest.approx(expected, rel=1e-7, abs=1e-8)
    assert tg.jvp(f, (0.7,), (1.0,))[1] == pytest.approx(expected, rel=1e-7, abs=1e-8)


def test_objects_made_inside_compiled():
    f = tg.compile(tg.value_and_grad(lambda x: np.sum(Frozen(x).again()) * Square(x).area() + Diamond().value(x)[0]))  # fmt: skip
    for x in (0.7, 0.9, 1.1):
        assert f(x)[1] == pytest.approx(9 * x**2 + 4 * x, rel=1e-13)  # of (3 x + 1) x^2 + x^2


def by_local(x):
    kind = Square
    return Square(x).area() if kind is OF_CLASS.of else 10 * np.sum(np.array([x, x]))


class Body:
    def __init__(self, place):
        self.place = place

    def energy(self, x):
        return sum(np.sum((np.array([x]) - b.place) ** 2) for b in BODIES if b is not self)


SUN = Body(0.0)
BODIES = [SUN, Body(1.0)]


class Base:
    @property
    def weight(self):
        return np.array([1.0, 2.0])

    def norm(self, v):
        return np.array([v[0]])[0]

    def area(self, x):
        return x * np.sum(np.array([1.0, 1.0]))


class Constant(Base):
    weight = np.array([10.0, 20.0])
    scale: float = 3.0

    def area(self, x):
        return 2 * self.__class__.__bases__[0].area(self, x) * np.sum(np.array([1.0]))

    def noted(self, x):
        return x * len(type(self).__annotations__) * np.sum(np.array([1.0])) + len(vars(type(self)))


class Foreign(Base):
    norm = staticmethod(np.linalg.norm)

    def area(self, x):
        self.__class__ = Base
        return x * np.sum(np.array([1.0]))


CONSTANT, FOREIGN, CHANGED = Constant(), Foreign(), Body(1.0)


def made_foreign(x):
    made = Foreign()
    return made.area(x) + made.area(x)


def change(x):
    global CHANGED
    CHANGED = Body(x)


def changed(x):
    change(x)
    return CHANGED.energy(x) * np.sum(np.array([x]))


def local_abstract(x):
    class Local(Base, abc.ABC):
        pass

    return Local().area(x) * 2


def annotated(x):
    def build(kind: type[Base]):
        return kind().area(x)

    return build(Base)


METHODS = {euler: 2.0, midpoint: 3.0}


def weighed_by_key(x):
    return METHODS[euler] * np.sum(euler(x))


def weighed(f, x):
    return METHODS.get(f, 1.0) * np.sum(f(x))


def member(f, x):
    return np.sum(f(x)) if f in METHODS else 10 * np.sum(midpoint(x))


def at_place(f, x):
    return [midpoint, euler].index(f) * np.sum(f(x))


TOLD_APART = [
    weighed_by_key, lambda x: METHODS.get(euler, 1.0) * np.sum(euler(x)), lambda x: weighed(euler, x), lambda x: member(euler, x),
    lambda x: at_place(euler, x),
    by_identity, by_equality, by_membership, by_class, by_object, by_method, by_local, SUN.energy, lambda x: SUN.energy(x),
    lambda x: np.sum(CONSTANT.weight * x), lambda x: np.sum(Constant().weight * x), lambda x: FOREIGN.norm(np.stack([3 * x, 4 * x])),
    lambda x: sum(kind().area(x) for kind in Base.__subclasses__()), lambda x: Constant().area(x), lambda x: Constant().noted(x),
    made_foreign, changed, local_abstract, annotated,
]  # fmt: skip


@pytest.mark.parametrize("f", TOLD_APART)
def test_what_could_be_told_from_its_copy(f):
    """A copy is another object than the function or class: what compares it or looks into it must not go the other way."""
    try:
        value, slope = tg.value_and_grad(f)(0.7)
    except tg.GradientLost:
        return
    assert value == pytest.approx(f(0.7), rel=1e-14)
    assert slope == pytest.approx(slope_of(f, 0.7), rel=1e-7)


def test_a_compared_function_that_needs_no_copy_changes_nothing():
    f = lambda x, method: np.sum(np.array([x, x])) if method is np.sum else 3 * x  # noqa: E731
    assert tg.grad(f)(0.7, np.sum) == 2.0


class Changing:
    def value(self, x):
        return np.array([x, x])


def test_methods_that_are_bound_anew():
    f = lambda x: np.sum(Changing().value(x))  # noqa: E731
    assert tg.grad(f)(0.7) == 2.0
    was = Changing.value
    try:
        Changing.value = lambda self, x: np.array([x, x, x])
        assert tg.grad(f)(0.7) == 3.0
    finally:
        Changing.value = was
    assert tg.grad(f)(0.7) == 2.0


class Later(Changing):
    pass


def test_methods_that_come_before_a_bases():
    f = lambda x: np.sum(Later().value(x))  # noqa: E731
    assert tg.grad(f)(0.7) == 2.0
    try:
        Later.value = lambda self, x: 5 * x
        assert tg.grad(f)(0.7) == 5.0
    finally:
        del Later.value
    assert tg.grad(f)(0.7) == 2.0


@pytest.mark.long
def test_what_a_function_closes_over_is_freed_with_it():
    def once():
        held = np.ones(3).view(Freed)
        tg.grad(lambda x: np.sum(np.array([x, x, x]) * held))(0.7)
        return weakref.ref(held)

    assert once()() is None

    def of_object():
        model = Method(np.ones(3).view(Freed))
        tg.grad(model.total)(0.7)
        return weakref.ref(model.of)

    refs = [of_object() for _ in range(3)]
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


class Freed(np.ndarray):
    """An array with weak references."""


def test_objects_that_leave_are_of_their_class():
    value, made = tg.grad(lambda x: (np.sum(Frozen(x).both()), Frozen(2.0)), has_aux=True)(0.7)
    assert isinstance(made, Frozen) and made == Frozen(2.0) and made.__class__ is Frozen
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is Frozen and again == Frozen(2.0)
    assert value == 1.0


class Lazy:
    def __init__(self):
        self.stiffness, self.given, self._matrix = 2.0, tg.zeros(2), None

    def matrix(self):
        if self._matrix is None:
            self._matrix = np.zeros((2, 2))
            self._matrix[0, 0] = self.stiffness
        return self._matrix

    @functools.cached_property
    def column(self):
        made = np.zeros(2)
        made[1] = self.stiffness
        return made

    def value(self, x):
        self.last = x * 2
        return np.sum(self.matrix() @ np.array([x, x])) + np.sum(self.column) * x


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: lambda x: f(x)], ids=["method", "named"])
def test_arrays_that_objects_keep_are_numpys(wrap):
    model = Lazy()
    assert tg.grad(wrap(model.value))(0.7) == 4.0
    assert type(model._matrix) is np.ndarray and type(model.column) is np.ndarray
    assert isinstance(model.given, tg.Tensor)
    assert type(model.value(0.7)) is np.float64


@dataclasses.dataclass
class State:
    a: float
    b: float

    def joined(self):
        return np.array([self.a, self.b])


def test_records_made_inside_are_pytrees():
    """What the library is given back, or goes through its loops, is of the user's class, not of its stand-in."""

    def made(x):
        return State(x * x, 2 * x * State(x, x).joined()[0])

    def looped(x, begin):
        return tg.scan(lambda c, i: (State(c.a * x, c.b + i), c), begin, np.arange(3.0))[0].a

    for given in (
        tg.jacobian(made)(1.5),
        tg.compile(made)(1.5),
        tg.vmap(made)(np.ones(2)),
        tg.jvp(made, (1.5,), (1.0,))[1],
        tg.vjp(made, 1.5)[0],
        tg.grad(lambda x: (np.sum(made(x).joined()), made(x)), has_aux=True)(1.5)[1],
        tg.grad(lambda s: np.sum(State(s.a, s.b).joined()))(State(1.0, 2.0)),
        tg.map(made, np.ones(2)),
        tg.checkpoint(made)(1.5),
    ):
        assert type(given) is State
    assert tg.compile(made)(1.5) == State(2.25, 4.5) and tg.jacobian(made)(1.5) == State(3.0, 6.0)
    assert tg.grad(looped)(1.5, State(1.0, 2.0)) == pytest.approx(3 * 1.5**2)
    assert tg.grad(lambda x: looped(x, State(1.0, x)))(1.5) == pytest.approx(3 * 1.5**2)
    assert tg.vmap(made, out_axes=State(0, 0))(np.ones(2)).a.shape == (2,)


class Closed:
    """An object whose end closes something."""

    ended = 0

    def __init__(self):
        self.rows = [2.0, 3.0]

    def value(self, x):
        return np.array([x * row for row in self.rows])

    def __del__(self):
        Closed.ended += 1


@pytest.mark.long
def test_a_shadow_ends_nothing():
    held = Closed()
    f = lambda x: np.sum(held.value(x))  # noqa: E731
    assert tg.grad(f)(0.7) == 5.0
    before = Closed.ended
    del f
    gc.collect()
    tg.grad(lambda x: np.sum(held.value(x)))(0.7)
    gc.collect()
    assert Closed.ended == before


class Virtual:
    pass


def test_abstract_classes_know_their_own_afterwards():
    Shape.register(Virtual)
    implementation = vars(Shape)["_abc_impl"]

    def f(x):
        known = isinstance(Virtual(), Shape) and issubclass(Virtual, Shape)
        return Square(x).area() * (2.0 if known else 3.0)

    assert tg.grad(f)(0.7) == pytest.approx(2.8)

    def refused(x):
        try:
            Shape()
        except TypeError:
            return 2 * Square(x).area()
        return x

    assert tg.grad(refused)(0.7) == pytest.approx(2.8)
    assert isinstance(Virtual(), Shape) and isinstance(Square(1.0), Shape)
    assert not isinstance(3.0, Shape) and not issubclass(int, Shape)
    assert vars(Shape)["_abc_impl"] is implementation


TABLES: dict[str, object] = {}


class Table:
    def __init__(self):
        self.weights = np.zeros(3)
        self.weights[0] = 1.0

    def value(self, x):
        return np.sum(np.array([x, x, x]) * self.weights)


def test_objects_that_outlive_the_function_are_plain():
    def f(x):
        if "t" not in TABLES:
            TABLES["t"] = Table()
        return TABLES["t"].value(x) * x

    for run in (tg.grad(f), lambda x: tg.jvp(f, (x,), (1.0,))[1], tg.compile(tg.grad(f))):
        TABLES.clear()
        assert run(0.7) == pytest.approx(1.4)
        assert type(TABLES["t"]) is Table and type(TABLES["t"].weights) is np.ndarray
        assert type(TABLES["t"].value(1.0)) is np.float64


def test_objects_that_change_between_calls():
    model = Method(np.ones(3))
    f = lambda x: model.total(x)  # noqa: E731
    assert tg.grad(f)(0.7) == 3.0 and tg.grad(model.total)(0.7) == 3.0
    model.__dict__ = {"of": 2 * np.ones(3)}
    assert tg.grad(f)(0.7) == 6.0 and tg.grad(model.total)(0.7) == 6.0
    model.__class__ = Tripled
    assert tg.grad(f)(0.7) == 18.0 and tg.grad(model.total)(0.7) == 18.0


class Tripled(Method):
    def total(self, x):
        return 3 * np.sum(np.array([x, x, x]) * self.of)


def stepped(x, *, k=2.0):
    return np.sum(np.array([k * x]))


def test_settings_that_change_between_calls():
    partial = functools.partial(stepped, k=3.0)
    f = lambda x: stepped(x) + partial(x)  # noqa: E731
    assert tg.grad(f)(0.7) == 5.0
    partial.keywords["k"] = 9.0
    assert tg.grad(f)(0.7) == 11.0
    was = stepped.__kwdefaults__
    try:
        stepped.__kwdefaults__ = {"k": 5.0}
        assert tg.grad(f)(0.7) == 14.0
    finally:
        stepped.__kwdefaults__ = was


SCALE = 2.0


def test_bodies_of_classes_see_globals():
    def f(x):
        class Scaled:
            by = SCALE

        return np.sum(np.array([x, x])) * Scaled.by

    global SCALE
    assert tg.grad(f)(0.7) == 4.0
    try:
        SCALE = 3.0
        assert tg.grad(f)(0.7) == 6.0
    finally:
        SCALE = 2.0


@dataclasses.dataclass(slots=True)
class Closed2:
    a: float

    def value(self, x):
        try:
            self.b = x
        except AttributeError:
            return 2 * np.sum(np.array([x, self.a]))
        return x


def same(a, b):
    return a is b


class Weighed(Body):
    def weighed(self, x):
        return sum(np.sum(np.array([x])) for b in BODIES if not same(b, self))


WEIGHED = Weighed(3.0)
BODIES.append(WEIGHED)


@pytest.mark.parametrize(
    "f", [lambda x: Closed2(x).value(x), lambda x: WEIGHED.weighed(x), WEIGHED.weighed]
)
def test_slots_and_helpers_that_compare(f):
    test_what_could_be_told_from_its_copy(f)


def test_classes_that_know_their_subclasses_are_left():
    class Known:
        names: typing.ClassVar[list[str]] = []

        def __init_subclass__(cls):
            Known.names.append(cls.__name__)

        def value(self, x):
            return np.array([x])

    with pytest.raises(tg.GradientLost):
        tg.grad(lambda x: np.sum(Known().value(x)))(0.7)
    assert Known.names == []


class Colour(enum.Enum):
    RED = 1

    def value_of(self, x):
        return np.array([x])


def test_what_has_no_stand_in_raises():
    with pytest.raises(tg.GradientLost):
        tg.grad(lambda x: np.sum(Colour.RED.value_of(x)))(0.7)


def test_copies_are_told():
    found = adoptions(lambda x: np.sum(Square(x).area()))
    assert any("Square.area" in name for name in found)


def curved(x):
    return np.array([x, x])


HOOKS = []


def test_globals_that_code_out_of_sight_binds_anew(monkeypatch):
    def f(x):
        first = np.sum(curved(x))
        for h in HOOKS:
            h()
        return first + np.sum(curved(x))

    monkeypatch.setitem(globals(), "curved", curved)  # to be put back afterwards
    monkeypatch.setattr(
        sys.modules[__name__], "HOOKS", [lambda: globals().update(curved=lambda x: 10 * x)]
    )
    assert tg.grad(f)(0.7) == 12.0


def doubled(x):
    return 2 * x


def test_text_that_is_run():
    def f(x):
        found = {}
        y = np.zeros(2)
        y[:] = eval("np.sin(x) + doubled(x)")
        exec("z = np.cos(1.0) + 2", None, found)
        return np.sum(y) * found["z"] + eval("x * one", {"one": 1.0}, {"x": x})

    np.testing.assert_allclose(tg.grad(f)(0.7), 2 * (np.cos(0.7) + 2) * (np.cos(1.0) + 2) + 1)


def test_variables_of_closures_that_code_out_of_sight_binds_anew():
    inner = lambda x: np.array([x, x])  # noqa: E731

    def change():
        nonlocal inner
        inner = lambda x: np.array([10 * x])  # noqa: E731

    hooks = [change]

    def f(x):
        first = np.sum(inner(x))
        for h in hooks:
            h()
        return first + np.sum(inner(x))

    with pytest.raises(tg.GradientLost, match=r"inner was bound anew while .*\[bound-anew\]$"):
        tg.grad(f)(0.7)
    hooks.clear()
    assert tg.grad(f)(0.7) == 20.0


def test_methods_that_code_out_of_sight_binds_anew(monkeypatch):
    def f(x):
        first = np.sum(Changing().value(x))
        for h in HOOKS:
            h()
        return first + np.sum(Changing().value(x))

    monkeypatch.setattr(Changing, "value", Changing.value)
    hook = lambda: setattr(Changing, "value", lambda self, x: np.array([x, x, x]))  # noqa: E731
    monkeypatch.setattr(sys.modules[__name__], "HOOKS", [hook])
    with pytest.raises(tg.GradientLost, match=r"Changing.value was bound anew"):
        tg.grad(f)(0.7)
    monkeypatch.setattr(sys.modules[__name__], "HOOKS", [])
    assert tg.grad(f)(0.7) == 6.0


class _Lazy:
    """Finds its attributes when they are asked for, as a wrapper of a module that may be missing does."""

    asked: typing.ClassVar[list[str]] = []

    def __getattr__(self, name):
        self.asked.append(name)
        raise ModuleNotFoundError(name)

    def twice(self, x):
        return 2.0 * x


class _Watched:
    def __getattribute__(self, name):
        if name not in ("twice", "__class__"):  # which `isinstance` asks for
            _Lazy.asked.append(name)
            raise ModuleNotFoundError(name)
        return object.__getattribute__(self, name)

    def twice(self, x):
        return 2.0 * x


_lazy, _watched = _Lazy(), _Watched()
_table = {"lazy": _lazy, "watched": _watched}


@pytest.mark.parametrize("closed", [False, True])
def test_objects_are_looked_at_without_running_their_code(closed):
    lazy, watched = _Lazy(), _Watched()
    held = {"lazy": lazy, "watched": watched}
    _Lazy.asked.clear()

    def by_closure(x):
        y = np.zeros(3)
        y[0], y[1] = lazy.twice(x[0]), watched.twice(x[1])
        y[2] = held["lazy"].twice(x[0] * x[1])
        return np.sum(y * y)

    def by_global(x):
        y = np.zeros(3)
        y[0], y[1] = _lazy.twice(x[0]), _watched.twice(x[1])
        y[2] = _table["lazy"].twice(x[0] * x[1])
        return np.sum(y * y)

    f = by_closure if closed else by_global
    x = np.array([1.5, -0.5])
    slope = 8.0 * np.array([x[0] + x[0] * x[1] ** 2, x[1] + x[0] ** 2 * x[1]])
    np.testing.assert_allclose(tg.grad(f)(x), slope)
    np.testing.assert_allclose(tg.jacobian(f, mode="forward")(x), slope)
    compiled = tg.compile(tg.grad(f))
    for _ in range(3):
        np.testing.assert_allclose(compiled(x), slope)
    assert not _Lazy.asked
