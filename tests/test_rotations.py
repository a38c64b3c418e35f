"""tg.spatial.transform: SciPy's rotations, differentiable at every angle."""

import numpy as np
import pytest
import scipy.spatial
import scipy.spatial.transform

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.spatial.transform.Rotation, scipy.spatial.transform.Rotation
SEQUENCES = ["xyz", "XYZ", "zyx", "ZXZ", "yxy", "YZX"]
SMALL = [0.0, 1e-9, 1e-3, 0.3, 0.99, 1.01, 3.1]


def same(found, expected, rtol=1e-12, atol=1e-13):
    found = found.numpy() if isinstance(found, tg.Tensor) else found
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol, atol)


@pytest.mark.parametrize("shape", [(), (5,)])
def test_values_are_scipys(shape, rng):
    q, v, m = (
        rng.normal(size=(*shape, 4)),
        rng.normal(size=(*shape, 3)),
        rng.normal(size=(*shape, 3, 3)),
    )
    m = m * np.sign(np.linalg.det(m))[..., None, None]
    made = [("from_quat", q, {}), ("from_quat", q, {"scalar_first": True}), ("from_rotvec", v, {}), ("from_rotvec", 50 * v, {"degrees": True})]  # fmt: skip
    made += [("from_matrix", m, {}), ("from_mrp", v, {}), ("from_matrix", THEIRS.from_quat(q).as_matrix(), {"assume_valid": True})]  # fmt: skip
    for name, x, settings in made:
        for tracked in (tg.tensor(x), x):
            r, s = getattr(OURS, name)(tracked, **settings), getattr(THEIRS, name)(x, **settings)
            assert r.single == s.single and r.shape == shape
            same(r.as_quat(canonical=True), s.as_quat(canonical=True), 1e-10)
            same(r.as_matrix(), s.as_matrix(), 1e-10)
            same(r.as_rotvec(), s.as_rotvec(), 1e-9)
            same(r.as_rotvec(degrees=True), s.as_rotvec(degrees=True), 1e-9)
            same(r.as_mrp(), s.as_mrp(), 1e-9)
            same(r.magnitude(), s.magnitude(), 1e-10)
            same(r.inv().as_matrix(), s.inv().as_matrix(), 1e-10)
            same((r**1.7).as_matrix(), (s**1.7).as_matrix(), 1e-9)
            for seq in SEQUENCES:
                same(r.as_euler(seq), s.as_euler(seq), 1e-8)
            same(r.as_euler("zyx", degrees=True), s.as_euler("zyx", degrees=True), 1e-8)


def test_euler_angles_and_their_shapes(rng):
    for seq in [*SEQUENCES, "x", "Z", "xy", "YX"]:
        shapes = [(), (1,), (4,), (4, 1)] if len(seq) == 1 else [(len(seq),), (4, len(seq))]
        for shape in shapes:
            a = rng.normal(size=shape)
            r, s = (
                OURS.from_euler(seq, tg.tensor(a)),
                THEIRS.from_euler(seq, a[:, None] if shape == (4,) else a),
            )
            assert r.shape == (() if s.single else (len(s),)), (seq, shape)
            same(r.as_matrix(), s.as_matrix())
    same(OURS.from_euler("xyz", tg.tensor([10.0, 20.0, 30.0]), degrees=True).as_quat(), THEIRS.from_euler("xyz", [10, 20, 30], degrees=True).as_quat())  # fmt: skip


def test_use(rng):
    p, q, v, w = (
        rng.normal(size=(5, 4)),
        rng.normal(size=4),
        rng.normal(size=(5, 3)),
        rng.uniform(0.5, 2, 5),
    )
    r, s, one, two = (
        OURS.from_quat(tg.tensor(p)),
        THEIRS.from_quat(p),
        OURS.from_quat(q),
        THEIRS.from_quat(q),
    )
    for inverse in (False, True):
        same(r.apply(v, inverse), s.apply(v, inverse))
        same(r.apply(v[0], inverse=inverse), s.apply(v[0], inverse=inverse))
        same(one.apply(tg.tensor(v), inverse), two.apply(v, inverse))
        same(one.apply(v[0], inverse), two.apply(v[0], inverse))
    same((r * one).as_matrix(), (s * two).as_matrix())
    same(r[1:3].as_matrix(), s[1:3].as_matrix())
    same(r.mean().as_matrix(), s.mean().as_matrix(), 1e-9)
    same(r.mean(tg.tensor(w)).as_matrix(), s.mean(w).as_matrix(), 1e-9)
    same(OURS.concatenate([r, one]).as_matrix(), THEIRS.concatenate([s, two]).as_matrix())
    assert (
        len(r) == 5
        and len(list(r)) == 5
        and bool(np.all(r.approx_equal(r)))
        and "Rotation" in repr(one)
    )
    same(OURS.identity(2).as_matrix(), THEIRS.identity(2).as_matrix())
    assert OURS.random(3, rng).shape == (3,)
    for weights in (None, w):
        found, rest = OURS.align_vectors(tg.tensor(v), one.apply(v) + 0.1 * v[::-1], weights)
        expected, other = THEIRS.align_vectors(v, two.apply(v) + 0.1 * v[::-1], weights)
        same(found.as_matrix(), expected.as_matrix(), 1e-9)
        same(rest, other, 1e-9)
    same(
        OURS.align_vectors(tg.tensor(v[:2]), v[2:4])[0].as_matrix(),
        THEIRS.align_vectors(v[:2], v[2:4])[0].as_matrix(),
        1e-9,
    )


@pytest.mark.parametrize("angle", SMALL)
def test_rotation_vectors_are_differentiated_at_every_angle(angle, rng):
    axis = rng.normal(size=3)
    v = angle * axis / np.linalg.norm(axis)
    agree(lambda v: OURS.from_rotvec(v).as_matrix(), (v,), rng)
    agree(
        lambda v: (OURS.from_euler("xyz", [0.2, -0.1, 0.1]) * OURS.from_rotvec(v)).as_rotvec(),
        (v,),
        rng,
        rtol=1e-6,
        atol=1e-7,
    )
    if angle < 3:
        agree(lambda v: OURS.from_rotvec(v).as_rotvec(), (v,), rng, compiled=angle == 0.3)


@pytest.mark.long
def test_derivatives(rng):
    q, p = rng.normal(size=(2, 4)), rng.normal(size=(2, 4))
    v, w = rng.normal(size=(4, 3)), rng.uniform(0.5, 2.0, 4)
    m = THEIRS.from_quat(q).as_matrix()
    agree(lambda q, v: OURS.from_quat(q).apply(v), (q, v[:2]), rng, compiled=True)
    agree(lambda q, p: (OURS.from_quat(q) * OURS.from_quat(p).inv()).as_rotvec(), (q, p), rng)
    agree(lambda q: OURS.from_quat(q).as_mrp(), (q,), rng)
    agree(lambda q: OURS.from_quat(q).magnitude(), (q,), rng)
    agree(lambda v: OURS.from_mrp(v).as_quat(), (v,), rng)
    for k in range(2):  # each of the four ways to read a matrix
        for turn in np.vstack(
            [np.eye(4)[:3] + 0.1 * rng.normal(size=(3, 4)), [[0.1, 0.2, -0.1, 1.0]]]
        )[2 * k : 2 * k + 2]:
            agree(
                lambda m: OURS.from_matrix(m).as_rotvec(),
                (THEIRS.from_quat(turn).as_matrix(),),
                rng,
                second=False,
            )
    for seq in SEQUENCES[:4]:
        agree(lambda q, seq=seq: OURS.from_quat(q).as_euler(seq), (q,), rng)
        agree(lambda a, seq=seq: OURS.from_euler(seq, a).as_matrix(), (v,), rng)
    agree(
        lambda q, w: OURS.from_quat(q).mean(w).as_matrix(),
        (rng.normal(size=(4, 4)), w),
        rng,
        rtol=1e-6,
    )
    other = OURS.from_quat(q[0]).apply(v) + 0.1 * rng.normal(size=(4, 3))
    agree(lambda a, b, w: OURS.align_vectors(a, b, w)[0].as_matrix(), (v, other, w), rng, rtol=1e-6)
    agree(lambda a, b: OURS.align_vectors(a, b)[1], (v, other), rng, rtol=1e-6)
    assert tg.grad(lambda m: np.sum(OURS.from_matrix(m).as_quat()))(m).shape == (2, 3, 3)


def test_rotations_in_between(rng):
    q, times = rng.normal(size=(4, 4)), np.array([0.0, 1.0, 2.5, 3.0])
    slerp = tg.spatial.transform.Slerp(tg.tensor(times), OURS.from_quat(q))
    plain = scipy.spatial.transform.Slerp(times, THEIRS.from_quat(q))
    at = np.array([0.0, 0.3, 1.0, 2.9, 3.0])
    same(slerp(at).as_matrix(), plain(at).as_matrix(), 1e-10)
    same(slerp(0.3).as_matrix(), plain(0.3).as_matrix(), 1e-10)
    agree(
        lambda t, q, at: tg.spatial.transform.Slerp(t, OURS.from_quat(q))(at).as_matrix(),
        (times, q, np.array([0.3, 2.9])),
        rng,
    )
    a, b = (x / np.linalg.norm(x) for x in rng.normal(size=(2, 4)))
    for t in (0.3, np.array([0.0, 0.4, 1.0])):
        same(tg.spatial.geometric_slerp(tg.tensor(a), b, t), scipy.spatial.geometric_slerp(a, b, t))
        same(tg.spatial.geometric_slerp(a, b, t), scipy.spatial.geometric_slerp(a, b, t))
    agree(lambda t: tg.spatial.geometric_slerp(a, b, t), (np.array([0.2, 0.7]),), rng)
    unit = lambda x: x / np.sqrt(np.sum(x * x))  # noqa: E731
    agree(lambda a, b: tg.spatial.geometric_slerp(unit(a), unit(b), 0.3), (a, b), rng)


@pytest.mark.parametrize("size", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_smooth_rotations_in_between(n, size, rng):
    times, at = np.cumsum(rng.uniform(0.5, 1.5, n)), np.array([-0.2, 0.9, 1.7, 2.0, 7.0])
    q = THEIRS.from_rotvec(np.cumsum(size * rng.normal(size=(n, 3)), axis=0)).as_quat()
    made = tg.spatial.transform.RotationSpline
    plain = scipy.spatial.transform.RotationSpline(times, THEIRS.from_quat(q))
    for spline in (
        made(times, OURS.from_quat(q)),
        made(tg.tensor(times), OURS.from_quat(tg.tensor(q))),
    ):
        for t in (at, times, 1.1):
            same(spline(t).as_matrix(), plain(t).as_matrix(), 1e-7, 1e-7)
            for order in (1, 2):
                same(spline(t, order), plain(t, order), 1e-6, 1e-6)


@pytest.mark.parametrize(("n", "size", "second"), [(3, 0.4, True), (4, 0.0, False)])
def test_derivatives_of_smooth_rotations(n, size, second, rng):
    times = np.cumsum(rng.uniform(0.5, 1.5, n))
    q = THEIRS.from_rotvec(np.cumsum(size * rng.normal(size=(n, 3)), axis=0)).as_quat()

    def everything(t, q, at):
        spline = tg.spatial.transform.RotationSpline(t, OURS.from_quat(q))
        return np.concatenate([spline(at).apply(np.ones(3)), spline(at, 1), spline(at, 2)])

    inside = np.array([times[0] + 0.2, times[-1] - 0.3])
    agree(everything, (times, q, inside), rng, second=second, rtol=1e-6, atol=1e-7, names=(1, 2) if not size else None)  # fmt: skip


def test_smooth_rotations_where_scipys_iterations_do_not_converge():
    rng = np.random.default_rng(3)
    q, times = rng.normal(size=(6, 4)), np.cumsum(rng.uniform(0.05, 1.5, 6))
    at, along, h = times[[2]] + 0.01, rng.normal(size=(6, 4)), 1e-4

    def loss(q):
        return np.sum(np.sin(tg.spatial.transform.RotationSpline(times, OURS.from_quat(q))(at, 1)))

    expected = (loss(q + h * along) - loss(q - h * along)) / (2 * h)
    np.testing.assert_allclose(np.sum(tg.grad(loss)(q) * along), expected, 1e-5)


@pytest.mark.long
def test_compiled_smooth_rotations(rng):
    times, vectors = np.array([0.0, 1.0, 2.5, 3.0]), 0.4 * rng.normal(size=(4, 3))

    def loss(v):
        return np.sum(
            tg.spatial.transform.RotationSpline(times, OURS.from_rotvec(v))(np.array([0.3, 2.9]), 1)
            ** 2
        )

    fast = tg.compile(tg.grad(loss))
    for scale in (1.0, 1.2, 0.7):
        np.testing.assert_allclose(
            fast(scale * vectors), tg.grad(loss)(scale * vectors), 1e-7, 1e-9
        )


def test_procrustes(rng):
    a, b = rng.normal(size=(2, 6, 3))
    for found, expected in zip(
        tg.spatial.procrustes(tg.tensor(a), b), scipy.spatial.procrustes(a, b), strict=True
    ):
        same(found, expected, 1e-9)
    agree(lambda a, b: tg.spatial.procrustes(a, b)[2], (a, b), rng, rtol=1e-6)
    same(tg.spatial.procrustes(a, b)[2], scipy.spatial.procrustes(a, b)[2])


def test_gimbal_lock():
    angles = [0.3, np.pi / 2, 0.2]
    with pytest.warns(UserWarning, match="Gimbal"):
        expected = THEIRS.from_euler("xyz", angles).as_euler("xyz")
    with pytest.warns(UserWarning, match="Gimbal"):
        same(OURS.from_euler("xyz", tg.tensor(angles)).as_euler("xyz"), expected, 1e-7, 1e-7)
    with pytest.raises(tg.NotDifferentiable, match="gimbal lock"):
        tg.grad(lambda a: OURS.from_euler("xyz", a).as_euler("xyz")[0])(np.array(angles))


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda x: OURS.from_quat(x), ValueError, "4 numbers"),
        (lambda x: OURS.from_quat(np.zeros(4) * x[0]), ValueError, "zero norm"),
        (lambda x: OURS.from_rotvec(x[:2]), ValueError, "3 numbers"),
        (lambda x: OURS.from_matrix(x), ValueError, "3, 3"),
        (lambda x: OURS.from_matrix(-np.eye(3) * x[0]), ValueError, "Non-positive determinant"),
        (lambda x: OURS.from_euler("xyw", x), ValueError, "axes from"),
        (lambda x: OURS.from_euler("xxy", x), ValueError, "consecutive"),
        (lambda x: OURS.from_euler("xy", x), ValueError, "last dimension"),
        (lambda x: OURS.from_rotvec(x).as_euler("xy"), ValueError, "3 axes"),
        (lambda x: OURS.from_rotvec(x)[0], TypeError, "not subscriptable"),
        (lambda x: len(OURS.from_rotvec(x)), TypeError, "no len"),
        (lambda x: OURS.from_rotvec(x).reduce(), tg.NotDifferentiable, "jumps"),
        (lambda x: OURS.concatenate([x]), TypeError, "takes rotations"),
        (lambda x: OURS.align_vectors(x, x), ValueError, "two or more"),
        (lambda x: tg.spatial.transform.Slerp([0.0], OURS.from_rotvec(x)), ValueError, "at least 2"),
        (lambda x: tg.spatial.transform.Slerp([0.0, 0.0], OURS.from_rotvec(np.stack([x, x]))), ValueError, "increasing"),
        (lambda x: tg.spatial.transform.Slerp([0.0, 1.0], OURS.from_rotvec(np.stack([x, x])))(2.0), ValueError, "within the range"),
        (lambda x: tg.spatial.transform.RotationSpline([0.0, 1.0], x), TypeError, "RotationSpline takes rotations"),
        (lambda x: tg.spatial.transform.RotationSpline([0.0, 0.0], OURS.from_rotvec(np.stack([x, x]))), ValueError, "increasing"),
        (lambda x: tg.spatial.transform.RotationSpline([0.0], OURS.from_rotvec(np.stack([x, x]))), ValueError, "2 entries"),
        (lambda x: tg.spatial.transform.RotationSpline([0.0, 1.0], OURS.from_rotvec(np.stack([x, x])))(0.5, 3), ValueError, "0, 1 or 2"),
        (lambda x: tg.spatial.geometric_slerp(x, x, 0.5), ValueError, "unit vectors"),
        (lambda x: tg.spatial.geometric_slerp(np.eye(3)[0] + 0 * x, np.eye(3)[0], 0.5), tg.NotDifferentiable, "equal or opposite"),
        (lambda x: tg.spatial.procrustes(x, x), ValueError, "two-dimensional"),
    ],
)  # fmt: skip
def test_errors(call, kind, told):
    with pytest.raises(kind, match=told):
        call(tg.tensor([1.0, 2.0, 4.0], requires_grad=True))
