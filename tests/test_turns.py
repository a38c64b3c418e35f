"""Python loops whose turns become one entry of the tape before the walk back: derivatives are those of the loop as it is written."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import turns
from tapegrad.core import lifetime
from tapegrad.core.tape import STRIDE

P = np.array([0.7, 0.4, 0.3])
DATA = np.sin(np.arange(300.0) ** 1.5)
MIX = np.sin(np.arange(9.0)).reshape(3, 3) / 3


def carried(p, d):
    s, loss = p[2], 0.0
    for i in range(60):
        s = s + 0.01 * (p[0] * s - p[1] * np.sin(s))
        loss = loss + (s - DATA[i]) ** 2
    return loss


def numbers_of_each_turn(p, d):
    s, loss = p[2], 0.0
    for i in range(60):
        s = s * p[0] + d[i] * p[1] - i * 1e-3 * s
        loss = loss + (s - d[i + 3]) ** 2 * np.cos(d[2 * i])
    return loss


def listed(p, d):
    """A list of all states is stacked, and two of them are read one by one."""
    states, s = [], p[2] * 1.0
    for _ in range(60):
        s = s + 0.01 * (p[0] * s - p[1] * s**3)
        states.append(s)
    return np.sum(np.sin(np.stack([p[0], *states, s])) * d[:62]) + states[-1] * states[5]


def vectors(p, d):
    h = np.ones(3) * p[0]
    for _ in range(30):
        h = np.tanh(MIX @ h * p[1] + p[2])
        h = h + 0.1 * np.stack([h[1], h[2], h[0]]) * np.where(h > 0.5, h, 1.0)
    return np.sum(h * h)


def entries(p, d):
    q, s = np.concatenate([p] * 40), p[0] * 0
    for i in range(1, 110):
        s = s * 0.9 + np.sin(q[-i]) * q[i]
    return s * s


def one_after_the_other(p, d):
    """The second loop reads the list of the first from both ends, the third begins with what the second has made."""
    kept, s, loss = [], p[0], 0.0
    for _ in range(70):
        s = np.sin(s) * p[1] + 0.1
        kept.append(s)
    for i in range(70):
        s = s * 0.5 + kept[i] * kept[69 - i]
        loss = loss + s * s
    for _ in range(70):
        s = s * s * 0.3 + p[2] * s + 0.2
    return loss + s


def exchanged(p, d):
    a, b = p[0], p[1]
    for _ in range(60):
        a, b = b, 0.5 * a + 0.3 * np.cos(b) * p[2]
    return a * b


def complex_numbers(p, d):
    z = p[0] + 1j * p[1]
    for _ in range(60):
        z = z * z * 0.3 + np.exp(1j * p[2])
    return np.real(z * np.conj(z))


PLACES = np.random.default_rng(8).integers(-3, 3, (4, 80))


def words(p, d):
    """Which entries are read says a table: rows, columns, single entries, several at once; negative ones count from behind."""
    table = np.outer(np.concatenate([p, p**2]), d[:6]) + np.cos(np.arange(36.0)).reshape(6, 6)
    blocks = np.reshape(table, (3, 2, 6))
    s = np.ones(6) * p[0]
    for t in range(80):
        i, j, k, m = PLACES[:, t]
        s = np.tanh(s + table[i] - 0.3 * table[:, j] + table[int(k), m] * 0.1)
        s = s * np.sum(table[PLACES[:2, t]]) * 0.05 + blocks[..., PLACES[2:, t]][1, 0, 1]
        s = s + 0.1 * blocks[None, j, :, k][0, 1] + np.sum(table[np.array([[i, j]])][0, 1]) * 0.01
    return np.sum(s * s)


def few_words(p, d):
    """Of even steps in one of the two, and of always the same in the other."""
    table = np.outer(d[:200], p) + 0.1
    s = p[0]
    for t in range(90):
        s = (
            s * 0.7
            + table[t, 1] * table[2 * t + 3, -1]
            + table[PLACES[0, 0] % 5, PLACES[1, t % 80]]
        )
    return s


def rows_stored(p, d):
    """Rows, and numbers, go to arrays: in order, from the end and over each other, where other numbers were, or are read halfway."""
    rows, numbers = np.zeros((80, 3)), np.concatenate([p, p * p, np.cos(d[:60])])
    h = p * 1.0
    for t in range(60):
        h = np.sin(h * p[0] + d[t] * 0.3) + 0.1 * np.stack([h[1], h[2], h[0]])
        rows[t] = h * p[1]
        numbers[64 - t] = h[1] * h[0]
    middle = rows.copy()
    for t in range(60):
        h = np.sin(h * 0.9 + d[t] * p) + 0.1 * np.stack([h[2], h[1] * p[1], h[0] * p[2]])
        rows[t + 15] = h * np.cos(h)
        if t == 29:
            middle = middle + np.sin(rows)
    return np.sum(rows * np.sin(middle)) + numbers @ numbers * h[0] + rows[7, 1] * rows[20, 2]


LOOPS = (
    words, few_words, rows_stored,
    carried, numbers_of_each_turn, listed, vectors, entries, one_after_the_other, exchanged, complex_numbers,
)  # fmt: skip


@pytest.fixture
def wound(monkeypatch):
    """Turns of each loop that became one entry."""
    found = []
    whole = turns._Winder._wind
    monkeypatch.setattr(
        turns._Winder, "_wind", lambda self, s: found.append(s.turns) or whole(self, s)
    )
    return found


def same(got, expected):
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-13)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("f", LOOPS)
def test_walks_through_loops(f, wound):
    eager = tg.value_and_grad(f, argnums=(0, 1))
    compiled = tg.compile(eager)
    for k in range(3):
        p, d = P * (1 + 0.1 * k), DATA * (1 - 0.2 * k)
        (value, gradients), (expected, theirs) = compiled(p, d), eager(p, d)
        same([value, *gradients], [expected, *theirs])
    assert wound and min(wound) > 25
    assert compiled.latest.recorded < 400  # nobody needs the calls of the loop itself


@pytest.mark.parametrize("f", [words, few_words])
def test_loops_whose_turns_read_other_entries(f):
    """Without a walk back, too, and in float32."""
    for dtype, rtol in ((np.float64, 1e-10), (np.float32, 1e-4)):
        compiled = tg.compile(f)
        for k in range(3):
            p, d = ((P * (1 + 0.1 * k)).astype(dtype), (DATA * (1 - 0.2 * k)).astype(dtype))
            np.testing.assert_allclose(compiled(p, d), f(p, d), rtol=rtol)
        assert sum(native.loops for native in compiled.latest.natives)


def test_rows_that_a_loop_goes_over(wound):
    """They are read from the argument itself, turn by turn, and not stacked again."""

    def f(p, rows):
        s = p[:2]
        for row in rows:
            s = np.sin(s) + row * p[2]
        return np.sum(s**2)

    rows = DATA.reshape(150, 2)
    both = tg.value_and_grad(f)
    compiled = tg.compile(both)
    for k in range(2):
        (value, gradient), (expected, theirs) = compiled(P, rows * (k + 1)), both(P, rows * (k + 1))
        same([value, gradient], [expected, theirs])
    assert wound
    assert not compiled.report().calls


def test_entries_out_of_bounds_are_told():
    def f(p):
        s = p[0]
        for t in range(100):
            s = s * 0.9 + p[t % 2 if t < 99 else 7]
        return s

    with pytest.raises(IndexError):
        tg.compile(tg.grad(f))(P)


def test_values_of_turns_that_are_returned(wound):
    """What Python keeps of a turn is right, too."""

    def f(p):
        s, kept = p[0], []
        for _ in range(100):
            s = np.sin(s) + p[1]
            kept.append(s)
        return s, (kept[::40], s * 2)

    eager = tg.value_and_grad(f, has_aux=True)
    compiled = tg.compile(eager)
    for p in (P, P * 1.3):
        ((value, (kept, twice)), g), ((value_, (kept_, twice_)), g_) = compiled(p), eager(p)
        same([value, *kept, twice, g], [value_, *kept_, twice_, g_])
    assert wound == [100]


@pytest.mark.long
def test_gradients_of_gradients(wound):
    def g(p):
        return np.sum(tg.grad(carried)(p, DATA) ** 2)

    same(tg.value_and_grad(g)(P), tg.compile(tg.value_and_grad(g))(P))
    same([tg.hessian(exchanged)(P, DATA)], [tg.compile(tg.hessian(exchanged))(P, DATA)])
    assert wound


def test_index_arrays_that_each_turn_makes_anew(wound):
    """As np.pad does: equal arrays are one setting."""

    def f(p):
        u = np.outer(p, p)
        for _ in range(30):
            u = np.pad(u, 1, mode="edge")
            u = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + np.sin(u[1:-1, 2:]))
        return np.sum(u * u)

    same(tg.value_and_grad(f)(P), tg.compile(tg.value_and_grad(f))(P))
    assert wound


def writes(p):
    u = tg.zeros(250)
    u[0] = p[0]
    for i in range(249):
        u[i + 1] = u[i] * p[1] + 0.01
    return np.sum(u * u)


def looks(p):
    s = p[0]
    for _ in range(100):
        s = s * p[1] if s > 0.01 else s + 1.0 + p[2]
    return s


def narrow(p):
    """Numbers that change from turn to turn do not widen float32."""
    s = p[0]
    for i in range(100):
        s = s * 0.99 + p[1] * (0.01 * i)
    return s


@pytest.mark.parametrize("f, dtype", [(writes, "f8"), (looks, "f8"), (narrow, "f4")])
def test_what_stays_as_it_is(f, dtype, wound):
    p = P.astype(dtype)
    got, expected = tg.compile(tg.value_and_grad(f))(p), tg.value_and_grad(f)(p)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-5 if dtype == "f4" else 1e-11)
    assert (got[0].dtype, got[1].dtype) == (expected[0].dtype, expected[1].dtype)
    assert not wound


def test_first_turns_that_are_others(wound):
    """A loop that begins with constants, and ends in the middle of a turn."""

    def f(p):
        total, s = 0.0, 1.0
        for i in range(100):
            s = s * p[0] + p[1]
            if i == 99:
                break
            total = total + np.sin(s) * 0.5
        return total * s

    for p in (P, P / 2):
        same(tg.compile(tg.value_and_grad(f))(p), tg.value_and_grad(f)(p))
    assert wound and wound[0] < 100


@pytest.fixture
def blanks(monkeypatch):
    """Entries that nobody could ask for, of each tape that was looked at, while something is left on a graph of another."""
    found = []
    whole = turns.standing

    def standing(code, pending):
        kept = whole(code, pending)
        found.append((len(code) - len(kept)) // STRIDE)
        return kept

    monkeypatch.setattr(turns, "standing", standing)
    y = tg.tensor(P, requires_grad=True) * 2
    y.register_hook(lambda g: g)
    assert lifetime._State.on
    yield found
    del y


@pytest.mark.long(but=2)
@pytest.mark.parametrize("f", [f for f in LOOPS if f is not entries])
def test_loops_while_something_is_left_on_a_graph(f, wound, blanks):
    """A tensor of the loop that dies leaves a freed entry between those of the turns.

    `entries` is left out: both of its loops are one entry each while they are traced, so that there are no turns between which to look.
    """

    def wasteful(p, d):
        for i in range(300):
            _ = p[0] * d[i]
        return f(p, d)

    eager = tg.value_and_grad(wasteful, argnums=(0, 1))
    compiled = tg.compile(eager)
    for k in range(2):
        p, d = P * (1 + 0.1 * k), DATA * (1 - 0.2 * k)
        (value, gradients), (expected, theirs) = compiled(p, d), eager(p, d)
        same([value, *gradients], [expected, *theirs])
    assert max(blanks) > 100
    assert wound and min(wound) > 25


def test_what_dies_in_each_turn(wound, blanks):
    """In some turns the tensors that nobody reads are others: the loop is the same without them."""

    def f(p):
        s = p[0]
        for i in range(200):
            if i % 5 in (1, 2) or i % 11 == 3:
                _ = np.exp(s * p[2]) * i
            s = np.sin(s) * p[1] + 0.1
        return s * s

    same(tg.compile(tg.value_and_grad(f))(P), tg.value_and_grad(f)(P))
    assert max(blanks) > 100
    assert wound and wound[0] > 190


def test_a_walk_that_comes_to_what_was_freed(wound):
    """An entry that a walk has given up, and the value still reads, is an error with a loop behind it, too; one that is not read is none."""

    def f(p, reads):
        y = tg.tensor(0.5, requires_grad=True) * tg.tensor(0.3, requires_grad=True)
        y.backward()
        s = p[0]
        for _ in range(200):
            s = np.sin(s) * p[1] + 0.1
        return s * (y if reads else 2.0)

    for g in (tg.grad(f), tg.compile(tg.grad(f), static_argnums=1)):
        with pytest.raises(tg.GraphError, match="second time"):
            g(P, True)
        same([g(P, False)], [tg.grad(f)(P, False)])
    assert wound == [200, 200]


@pytest.mark.parametrize("held", [False, True])
def test_a_backward_in_each_turn(held, wound):
    """The entries that it goes through stand between those of the loop, freed, also while somebody holds their results."""

    def f(p):
        w = tg.tensor(P * 0.5, requires_grad=True)
        s, kept = p[0], []
        for _ in range(200):
            s = np.sin(s) * p[1] + 0.1
            loss = np.sum(np.cos(w) * w)
            loss.backward()
            if held:
                kept.append(loss)
        return s * s

    same(tg.compile(tg.value_and_grad(f))(P), tg.value_and_grad(f)(P))
    assert wound and wound[0] > 190


def test_a_hook_on_another_tensor_does_not_matter(wound):
    y = tg.tensor(P, requires_grad=True) * 2
    y.register_hook(lambda g: g)
    tg.compile(tg.value_and_grad(carried))(P, DATA)
    assert wound == [59]


def test_constants_on_either_side_are_two_calls():
    def f(x):
        for i in range(300):
            x = np.arctan2(x, 1.5) if i % 3 else np.arctan2(1.5, x)
        return x

    np.testing.assert_allclose(tg.compile(f)(0.7), f(0.7), rtol=1e-13)
