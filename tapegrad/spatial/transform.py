"""`tg.spatial.transform`: rotations in three dimensions that are differentiable by what they are made of, under SciPy's names.

A rotation is a unit quaternion (x, y, z, w), a tensor or an array of shape (..., 4); matrices, rotation vectors, Euler angles and
Rodrigues' parameters are made into quaternions and quaternions into these. Functions of the angle that are smooth at 0 (sin(a / 2) / a
and its kin) are power series of its square near 0, so that all derivatives hold at the identity.

Invariant: values are SciPy's; a rotation has two quaternions, and where rounding decides SciPy's choice and ours may differ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import NotDifferentiable
from ..ops.calculus import in_double
from ..ops.composing import holds_tensor, holds_tracked, operand, raw
from ..ops.linear_algebra import eigh
from ..ops.matrix_functions import polar

SINE = [(-1) ** k / (2 ** (2 * k + 1) * math.factorial(2 * k + 1)) for k in range(10)]
"""sin(a / 2) / a as a series in a², good to the last digit for a² < 1, as are its derivatives."""
COSINE = [(-1) ** k / (4**k * math.factorial(2 * k)) for k in range(10)]
ARCTAN = [(-1) ** k * 2 / (2 * k + 1) for k in range(16)]
"""2 arctan(u) / u as a series in u², for u² < 0.05."""
TURNED = [(-1) ** k / math.factorial(2 * k + 2) for k in range(12)]
"""(1 - cos a) / a² as a series in a², for a² < 1; those of TURNED_TWICE are (a - sin a) / a³."""
TURNED_TWICE = [(-1) ** k / math.factorial(2 * k + 3) for k in range(12)]
LOCKED = 1e-7
"""How near to a straight angle the second Euler angle makes the other two one, as in SciPy."""


def _series(coefficients: Sequence[float], s: Any) -> Any:
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * s + c
    return total


def _guarded(x: Any, use: Any, instead: float = 1.0) -> Any:
    """x where it is used, and a harmless number elsewhere, so that no branch divides by 0."""
    return np.where(use, x, instead)


def _vectors(value: Any, size: int, what: str) -> Any:
    value = in_double(operand(value))
    if np.ndim(value) < 1 or np.shape(value)[-1] != size:
        raise ValueError(
            f"{what} was given shape {np.shape(value)}, but takes {size} numbers along the last axis."
        )
    return value


def _is_plain(values: Any) -> bool:
    """Whether a value may be looked at: inside a compiled program it may not."""
    return isinstance(values, np.ndarray | np.generic)


def _unit(q: Any) -> Any:
    square = np.sum(q * q, axis=-1, keepdims=True)
    if _is_plain(raw(square)) and np.any(raw(square) == 0):
        raise ValueError("Found zero norm quaternions in `quat`.")
    return q / np.sqrt(square)


def _product(p: Any, q: Any) -> Any:
    """Hamilton's product of quaternions, scalar last."""
    (a, b, c, d), (x, y, z, w) = ([v[..., i] for i in range(4)] for v in (p, q))
    return np.stack(
        [d * x + a * w + b * z - c * y, d * y - a * z + b * w + c * x, d * z + a * y - b * x + c * w, d * w - a * x - b * y - c * z],
        axis=-1,
    )  # fmt: skip


_CONJUGATE = np.array([-1.0, -1.0, -1.0, 1.0])


def _from_rotvec(v: Any) -> Any:
    s = np.sum(v * v, axis=-1, keepdims=True)
    wide = s > 1.0
    near, angle = np.where(wide, 0.0, s), np.sqrt(_guarded(s, wide))
    sine = np.where(wide, np.sin(angle / 2) / angle, _series(SINE, near))
    cosine = np.where(wide, np.cos(angle / 2), _series(COSINE, near))
    return np.concatenate([v * sine, cosine], axis=-1)


def _half_angle_ratio(q: Any) -> Any:
    """The angle over the length of the vector part, of quaternions with w >= 0."""
    w = q[..., 3:]
    s = np.sum(q[..., :3] ** 2, axis=-1, keepdims=True)
    wide = s > 0.05 * w * w
    length = np.sqrt(_guarded(s, wide))
    near = np.where(wide, 0.0, s) / _guarded(w, ~wide) ** 2
    return np.where(
        wide, 2.0 * np.arctan2(length, w) / length, _series(ARCTAN, near) / _guarded(w, ~wide)
    )


def _canonical(q: Any) -> Any:
    """The one of two quaternions whose last entry that is not 0, from w through x to z, is positive."""
    w, x, y, z = (q[..., i] for i in (3, 0, 1, 2))
    turned = (w < 0) | ((w == 0) & ((x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))))
    return np.where(turned[..., None], -q, q)


def _from_matrix(m: Any) -> Any:
    """Quaternions of orthogonal matrices, by the largest of its four squares (Markley 2008)."""
    e = [[m[..., i, j] for j in range(3)] for i in range(3)]
    trace = e[0][0] + e[1][1] + e[2][2]
    rows: list[Any] = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        row: list[Any] = [None] * 4
        row[i] = 1 - trace + 2 * e[i][i]
        row[j] = e[j][i] + e[i][j]
        row[k] = e[k][i] + e[i][k]
        row[3] = e[k][j] - e[j][k]
        rows.append(np.stack(row, axis=-1))
    rows.append(
        np.stack([e[2][1] - e[1][2], e[0][2] - e[2][0], e[1][0] - e[0][1], 1 + trace], axis=-1)
    )
    largest = np.argmax(np.stack([e[0][0], e[1][1], e[2][2], trace], axis=-1), axis=-1)
    chosen = rows[0]
    for i in range(1, 4):
        chosen = np.where((largest == i)[..., None], rows[i], chosen)
    return _unit(chosen)


def _leading(k: Any) -> Any:
    """The eigenvector of the largest eigenvalue, and that eigenvalue."""
    values, vectors = eigh(k)
    return vectors[..., :, -1], values[..., -1]


def _axes(seq: str) -> tuple[list[int], bool]:
    """The axes of Euler angles, and whether they stand still (lower case)."""
    if not isinstance(seq, str) or not 1 <= len(seq) <= 3:
        raise ValueError(
            f"Expected axis specification to be a non-empty string of upto 3 characters, got {seq}"
        )
    outer = set(seq) <= set("xyz")
    if not outer and not set(seq) <= set("XYZ"):
        raise ValueError(
            f"Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got {seq}"
        )
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return ["xyz".index(c) for c in seq.lower()], outer


class Rotation:
    """One rotation, or an array of them, SciPy's `Rotation`: differentiable by what it is made of and by the vectors it is applied to.

    >>> import numpy as np, tapegrad as tg
    >>> from tapegrad.spatial.transform import Rotation
    >>> tg.jacobian(lambda v: Rotation.from_rotvec(v).apply([1.0, 0.0, 0.0]))(np.zeros(3))
    array([[ 0.,  0.,  0.],
           [ 0.,  0.,  1.],
           [ 0., -1.,  0.]])
    """

    def __init__(
        self, quat: Any, normalize: bool = True, copy: bool = True, scalar_first: bool = False
    ) -> None:
        """Rotations of quaternions (..., 4), which are brought to length 1."""
        quat = _vectors(quat, 4, "Rotation")
        if scalar_first:
            quat = np.roll(quat, -1, axis=-1)
        self._quat = _unit(quat) if normalize else quat

    # ------------------------------------------------------------------------------------------ made of

    @classmethod
    def from_quat(cls, quat: Any, *, scalar_first: bool = False) -> Rotation:
        """Rotations of quaternions (x, y, z, w), or (w, x, y, z) with `scalar_first`."""
        return cls(quat, scalar_first=scalar_first)

    @classmethod
    def from_matrix(cls, matrix: Any, *, assume_valid: bool = False) -> Rotation:
        """Rotations of matrices (..., 3, 3): of the orthogonal matrices nearest to them, unless `assume_valid`."""
        m = in_double(operand(matrix))
        if np.shape(m)[-2:] != (3, 3):
            raise ValueError(f"Expected `matrix` to have shape (..., 3, 3), got {np.shape(m)}")
        if not assume_valid:
            if _is_plain(raw(m)) and np.any(np.linalg.det(raw(m)) <= 0):
                raise ValueError(
                    "Non-positive determinant (left-handed or null coordinate frame) in rotation matrix."
                )
            m = polar(m)[0]
        return cls(_from_matrix(m), False)

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Rotations about vectors (..., 3), by angles that are their lengths."""
        v = _vectors(rotvec, 3, "from_rotvec")
        return cls(_from_rotvec(v * (math.pi / 180) if degrees else v), False)

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Rotations by one, two or three angles about axes that stand still ("xyz") or turn along ("XYZ")."""
        axes, outer = _axes(seq)
        angles = in_double(operand(angles))
        count = len(axes)
        if count == 1:
            if np.ndim(angles) == 0 or (np.ndim(angles) > 1 and np.shape(angles)[-1] != 1):
                angles = angles[..., None]
            elif np.ndim(angles) == 1 and np.shape(angles)[0] != 1:
                angles = angles[:, None]
        elif np.ndim(angles) < 1 or np.shape(angles)[-1] != count:
            raise ValueError(
                f"Expected last dimension of `angles` to match number of sequence axes specified, got {np.shape(angles)}"
            )
        half = angles * (math.pi / 360 if degrees else 0.5)
        sine, cosine = np.sin(half), np.cos(half)
        whole: Any = None
        for n, axis in enumerate(axes):
            zero = np.zeros(np.shape(half)[:-1])
            entries = [zero, zero, zero, cosine[..., n]]
            entries[axis] = sine[..., n]
            one = np.stack(entries, axis=-1)
            whole = (
                one if whole is None else _product(one, whole) if outer else _product(whole, one)
            )
        return cls(whole, False)

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Rotations of modified Rodrigues parameters (..., 3): axes times the tangent of a quarter of the angle."""
        v = _vectors(mrp, 3, "from_mrp")
        s = np.sum(v * v, axis=-1, keepdims=True)
        return cls(np.concatenate([2.0 * v, 1.0 - s], axis=-1) / (1.0 + s), False)

    @classmethod
    def identity(cls, num: int | None = None) -> Rotation:
        """The rotation by nothing, or `num` of them."""
        return cls(
            np.array([0.0, 0.0, 0.0, 1.0])
            if num is None
            else np.tile([0.0, 0.0, 0.0, 1.0], (num, 1)),
            False,
        )

    @classmethod
    def random(cls, num: int | None = None, rng: Any = None) -> Rotation:
        """Constant rotations, drawn evenly by SciPy."""
        from scipy.spatial.transform import Rotation as Plain

        return cls(Plain.random(num, rng).as_quat(), False)

    @classmethod
    def concatenate(cls, rotations: Any) -> Rotation:
        """Several rotations as one array of them."""
        parts = [rotations] if isinstance(rotations, Rotation) else list(rotations)
        if not parts or not all(isinstance(r, Rotation) for r in parts):
            raise TypeError(
                "Rotation.concatenate takes rotations of tapegrad's: a sequence of tg.spatial.transform.Rotation, not empty."
            )
        return cls(np.concatenate([np.atleast_2d(r._quat) for r in parts]), False)

    @classmethod
    def align_vectors(
        cls, a: Any, b: Any, weights: Any = None, return_sensitivity: bool = False
    ) -> tuple[Rotation, Any]:
        """The rotation R with the least weighted sum of squares of a - R b, and the root of that sum (Davenport's method).

        `a` and `b` hold two or more vectors (N, 3), `weights` a number for each; differentiable by all.
        """
        if return_sensitivity:
            raise NotDifferentiable(
                "align_vectors was asked for return_sensitivity=True, but the matrix that SciPy returns has no derivative here. "
                "Take tg.jacobian of the rotation vector by the vectors."
            )
        a, b = (_vectors(v, 3, "align_vectors") for v in (a, b))
        if np.ndim(a) != 2 or np.shape(a) != np.shape(b) or np.shape(a)[0] < 2:
            raise ValueError(
                f"align_vectors takes two or more vectors (N, 3) in both, got {np.shape(a)} and {np.shape(b)}."
            )
        w = np.ones(np.shape(a)[0]) if weights is None else operand(weights)
        if np.shape(w) != (np.shape(a)[0],):
            raise ValueError(
                f"Expected `weights` to have number of values equal to number of input vectors, got {np.shape(w)}"
            )
        if _is_plain(raw(w)) and not np.all((raw(w) >= 0) & np.isfinite(raw(w))):
            raise ValueError(
                "align_vectors takes weights that are finite and at least 0: a primary vector gets a large number."
            )
        wb = w[:, None] * b
        m = a.T @ wb
        trace = m[0, 0] + m[1, 1] + m[2, 2]
        z = np.stack([m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]])[:, None]
        top = np.concatenate([m + m.T - trace * np.eye(3), z], axis=1)
        k = np.concatenate([top, np.concatenate([z.T, np.reshape(trace, (1, 1))], axis=1)])
        q, largest = _leading(k)
        square = np.sum(w[:, None] * a * a) + np.sum(wb * b) - 2.0 * largest
        return cls(q, False), np.sqrt(np.maximum(square, 0.0))

    # ------------------------------------------------------------------------------------------ read as

    def as_quat(self, canonical: bool = False, *, scalar_first: bool = False) -> Any:
        """Quaternions (x, y, z, w); with `canonical` those with w >= 0."""
        q = _canonical(self._quat) if canonical else self._quat
        return np.roll(q, 1, axis=-1) if scalar_first else q

    def as_matrix(self) -> Any:
        """Matrices (..., 3, 3)."""
        x, y, z, w = (self._quat[..., i] for i in range(4))
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
        ]
        return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Vectors (..., 3) along the axes, as long as the angles (at most half a turn)."""
        q = _canonical(self._quat)
        found = q[..., :3] * _half_angle_ratio(q)
        return found * (180 / math.pi) if degrees else found

    def as_euler(self, seq: str, degrees: bool = False, *, suppress_warnings: bool = False) -> Any:
        """Three angles (..., 3) about axes that stand still ("xyz") or turn along ("XYZ").

        Where the first and the last axis coincide only their sum is determined: there angles of a tracked rotation are an error.
        """
        axes, outer = _axes(seq)
        if len(axes) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.")
        if not holds_tensor(self._quat):
            return self._plain().as_euler(seq, degrees)
        i, j, k = axes if outer else axes[::-1]
        proper = i == k
        k = 3 - i - j if proper else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = self._quat
        if proper:
            a, b, c, d = q[..., 3], q[..., i], q[..., j], q[..., k] * sign
        else:
            a, b = q[..., 3] - q[..., j], q[..., i] + q[..., k] * sign
            c, d = q[..., j] + q[..., 3], q[..., k] * sign - q[..., i]
        middle = 2.0 * np.arctan2(np.hypot(c, d), np.hypot(a, b))
        plain = raw(middle)
        if _is_plain(plain) and np.any((plain <= LOCKED) | (plain >= math.pi - LOCKED)):
            if holds_tracked(q):
                raise NotDifferentiable(
                    f"as_euler({seq!r}) was asked of a rotation in gimbal lock, where the first and the last axis coincide, so that their "
                    "angles have no derivative. Use another sequence, or as_rotvec or as_matrix."
                )
            return operand(self._plain().as_euler(seq, degrees))
        both, apart = np.arctan2(b, a), np.arctan2(d, c)
        first, last = both - apart, both + apart
        if not proper:
            last, middle = last * sign, middle - math.pi / 2
        angles = np.stack([first, middle, last] if outer else [last, middle, first], axis=-1)
        turns = np.where(raw(angles) < -math.pi, 1.0, 0.0) - np.where(
            raw(angles) > math.pi, 1.0, 0.0
        )
        angles = angles + 2 * math.pi * turns
        return angles * (180 / math.pi) if degrees else angles

    def as_mrp(self) -> Any:
        """Modified Rodrigues parameters (..., 3) of length at most 1."""
        q = self._quat
        q = np.where(q[..., 3:] < 0, -q, q)
        return q[..., :3] / (1.0 + q[..., 3:])

    def magnitude(self) -> Any:
        """The angles of the rotations; at the identity, where they have a kink, the slope is 0."""
        q = self._quat
        s = np.sum(q[..., :3] ** 2, axis=-1)
        none = s == 0
        length = np.where(none, 0.0, np.sqrt(_guarded(s, ~none)))
        return 2.0 * np.arctan2(length, np.abs(q[..., 3]))

    # ------------------------------------------------------------------------------------------ used

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """The vectors (..., 3) turned, by one rotation for all, or one for each; with `inverse`, turned back."""
        v = _vectors(vectors, 3, "apply")
        m = self.as_matrix()
        m = np.swapaxes(m, -1, -2) if inverse else m
        if np.ndim(m) == 2 and np.ndim(v) == 2:
            return v @ m.T
        return np.sum(m * v[..., None, :], axis=-1)

    def __mul__(self, other: Rotation) -> Rotation:
        if not isinstance(other, Rotation):
            return NotImplemented
        return Rotation(_product(self._quat, other._quat), False)

    def __pow__(self, n: Any, modulus: None = None) -> Rotation:
        if modulus is not None:
            raise NotImplementedError("modulus not supported")
        return Rotation.from_rotvec(n * self.as_rotvec())

    def inv(self) -> Rotation:
        """The rotations back."""
        return Rotation(self._quat * _CONJUGATE, False)

    def approx_equal(self, other: Rotation, atol: Any = None, degrees: bool = False) -> Any:
        """Whether two rotations differ by an angle of at most `atol` (1e-8 by default); truth values."""
        angle = raw((other * self.inv()).magnitude())
        limit = 1e-8 if atol is None else math.radians(atol) if degrees else atol
        return angle < limit

    def mean(self, weights: Any = None, axis: Any = None) -> Rotation:
        """The rotation with the least (weighted) sum of squared chordal distances; differentiable by rotations and weights."""
        if axis is not None:
            raise NotDifferentiable(
                f"Rotation.mean was asked along axis={axis}, but the mean is that of all rotations here. Take parts of them by their index."
            )
        q = np.reshape(self._quat, (-1, 4))
        w = None if weights is None else np.reshape(operand(weights), (-1, 1))
        return Rotation(_leading(q.T @ (q if w is None else w * q))[0], False)

    def reduce(self, left: Any = None, right: Any = None, return_indices: bool = False) -> Any:
        """Refused: which member of a group is nearest jumps."""
        raise NotDifferentiable(
            "Rotation.reduce was asked of a differentiable rotation, but which member of a group is nearest jumps. "
            "Reduce scipy.spatial.transform.Rotation.from_quat(r.as_quat().numpy())."
        )

    @property
    def single(self) -> bool:
        """Whether this is one rotation, and no array of them."""
        return np.ndim(self._quat) == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array of rotations."""
        return tuple(np.shape(self._quat)[:-1])

    def __getitem__(self, index: Any) -> Rotation:
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self._quat[index], False)

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return self.shape[0]

    def __iter__(self) -> Iterator[Rotation]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Rotation.from_quat({self._quat!r})"

    def _plain(self) -> Any:
        from scipy.spatial.transform import Rotation as Plain

        return Plain.from_quat(raw(self._quat))


def _timed(name: str, times: Any, rotations: Any) -> Any:
    """The times of two or more rotations, which increase."""
    if not isinstance(rotations, Rotation):
        raise TypeError(
            f"{name} takes rotations of tapegrad's: give tg.spatial.transform.Rotation, which holds two or more."
        )
    if rotations.single or len(rotations) <= 1 or len(rotations.shape) > 1:
        raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
    times = in_double(operand(times))
    if np.shape(times) != (len(rotations),):
        raise ValueError(
            f"Expected times to be 1-dimensional with {len(rotations)} entries, got shape {np.shape(times)}."
        )
    if _is_plain(raw(times)) and np.any(np.diff(raw(times)) <= 0):
        raise ValueError("Times must be in strictly increasing order.")
    return times


def _segment(known: Any, asked: Any) -> Any:
    """The number of the last known time that is not later, but for the very last."""
    return np.clip(np.searchsorted(known, asked, side="right") - 1, 0, np.shape(known)[0] - 2)


class Slerp:
    """Rotations in between, SciPy's `Slerp`: turned at a constant rate from each to the next; differentiable by rotations and times.

    >>> import numpy as np, tapegrad as tg
    >>> from tapegrad.spatial.transform import Rotation, Slerp
    >>> ends = Rotation.from_euler("z", [0.0, 90.0], degrees=True)
    >>> round(tg.grad(lambda t: Slerp([0.0, 1.0], ends)(t).as_euler("zyx", degrees=True)[0])(0.25), 9)
    90.0
    """

    def __init__(self, times: Any, rotations: Rotation) -> None:
        """Keep two or more rotations and their times, which increase."""
        self.times = _timed("Slerp", times, rotations)
        self.rotations = rotations[:-1]
        self.rotvecs = (self.rotations.inv() * rotations[1:]).as_rotvec()

    def __call__(self, times: Any) -> Rotation:
        """The rotations at times, a number or a vector, between the first and the last."""
        t = in_double(operand(times))
        if np.ndim(t) > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        known, asked = raw(self.times), raw(t)
        if (
            _is_plain(known)
            and _is_plain(asked)
            and np.any((asked < known[0]) | (asked > known[-1]))
        ):
            raise ValueError(
                f"Interpolation times must be within the range [{known[0]}, {known[-1]}], both inclusive."
            )
        where = _segment(known, asked)
        share = (t - self.times[where]) / (self.times[where + 1] - self.times[where])
        return self.rotations[where] * Rotation.from_rotvec(self.rotvecs[where] * share[..., None])


def _turned(v: Any) -> tuple[Any, Any, Any, Any]:
    """(1 - cos a) / a² and (a - sin a) / a³ of rotation vectors of length a, and the slopes of both by a²."""
    square = np.sum(v * v, axis=-1, keepdims=True)
    wide = square > 1.0
    near, s = np.where(wide, 0.0, square), _guarded(square, wide)
    a = np.sqrt(s)
    sine, cosine = np.sin(a), np.cos(a)
    far = (
        (1 - cosine) / s,
        (a - sine) / (a * s),
        (a * sine - 2 * (1 - cosine)) / (2 * s * s),
        (3 * sine - 2 * a - a * cosine) / (2 * a * s * s),
    )
    series = [TURNED, TURNED_TWICE]
    series += [[k * c for k, c in enumerate(one)][1:] for one in series]
    return tuple(np.where(wide, x, _series(c, near)) for x, c in zip(far, series, strict=True))  # type: ignore[return-value]


def _angular_rate(v: Any, rate: Any) -> Any:
    """The angular rate where a rotation vector v changes at a rate."""
    once, twice, _, _ = _turned(v)
    c = np.cross(v, rate)
    return rate - once * c + twice * np.cross(v, c)


def _angular_acceleration(v: Any, rate: Any, second: Any) -> Any:
    """The angular acceleration where a rotation vector v changes at a rate that changes, too: the rate of the angular rate."""
    _, twice, by_once, by_twice = _turned(v)
    c = np.cross(v, rate)
    change = 2.0 * np.sum(v * rate, axis=-1, keepdims=True)
    bent = twice * np.cross(rate, c) - change * (by_once * c - by_twice * np.cross(v, c))
    return _angular_rate(v, second) + bent


def _to_rate_of_vector(v: Any, angular: Any) -> Any:
    """The rate of a rotation vector v where the angular rate is given: the inverse of `_angular_rate`."""
    units = [_angular_rate(v, np.broadcast_to(e, np.shape(v))) for e in np.eye(3)]
    return np.linalg.solve(np.stack(units, axis=-1), angular[..., None])[..., 0]


class RotationSpline:
    """Rotations in between with continuous angular rate and acceleration, SciPy's `RotationSpline`; differentiable by rotations and times.

    Between two times the rotation vector from the first is a cubic of time. The angular rates at the times in the middle solve equations,
    by SciPy's ten iterations and further steps if need be, and have the derivatives of the solution; the rates at both ends are those
    of a constant turn.

    >>> import numpy as np, tapegrad as tg
    >>> from tapegrad.spatial.transform import Rotation, RotationSpline
    >>> turned = lambda angles: RotationSpline([0.0, 1.0, 2.0], Rotation.from_euler("z", angles))
    >>> tg.grad(lambda angles: turned(angles)(0.5).as_rotvec()[2])(np.array([0.0, 1.0, 1.0])).round(4)
    array([ 0.4375,  0.625 , -0.0625])
    """

    def __init__(self, times: Any, rotations: Rotation) -> None:
        """Keep two or more rotations and their times, which increase, and find the angular rates."""
        from ..interop.own_solvers import custom_root
        from ..interop.solvers import root
        from ..interpolation.piecewise import PPoly

        self.times, self.rotations = _timed("RotationSpline", times, rotations), rotations
        vectors = (rotations[:-1].inv() * rotations[1:]).as_rotvec()
        dt = (self.times[1:] - self.times[:-1])[:, None]
        constant = vectors / dt

        def cubic(inner: Any) -> tuple[Any, Any, Any]:
            """Coefficients of the third, second and first power of time, by the angular rates at the inner times."""
            first = np.concatenate([constant[:1], inner])
            last = np.concatenate([_to_rate_of_vector(vectors[:-1], inner), constant[-1:]])
            return (
                (dt * (first + last) - 2.0 * vectors) / dt**3,
                (3.0 * vectors - dt * (2.0 * first + last)) / dt**2,
                first,
            )

        def jump(inner: Any) -> Any:
            """How much the angular acceleration jumps at the inner times."""
            third, second, first = cubic(inner)
            ended = (3.0 * third * dt + 2.0 * second) * dt + first
            before = _angular_acceleration(vectors, ended, 6.0 * third * dt + 2.0 * second)
            return before[:-1] - 2.0 * second[1:]

        inner = constant[1:]
        if len(rotations) > 2:
            start = constant[:-1]
            if _is_plain(raw(start)):
                inner = custom_root(jump, raw(start), self._rates)
            else:  # in a compiled program
                inner = root(jump, start, tol=1e-12).x
        third, second, first = cubic(inner)
        self.interpolator = PPoly(
            np.stack([third, second, first, np.zeros_like(first)]), self.times
        )

    def _rates(self, jump: Any, start: Any) -> np.ndarray:
        """The angular rates at the inner times, as SciPy's ten iterations find them; where those do not suffice, by further steps."""
        from scipy.spatial.transform import RotationSpline as Plain

        from ..interop.solvers import root

        found = Plain(raw(self.times), self.rotations._plain()).interpolator.c[2, 1:]
        small = 1e-8 * (1 + np.max(np.abs(found))) / np.min(np.diff(raw(self.times)))
        if np.max(np.abs(raw(jump(found)))) <= small:
            return found
        found = root(jump, found, tol=1e-12, compile=False).x
        if not np.max(np.abs(raw(jump(found)))) <= small:
            raise NotDifferentiable(
                "RotationSpline found no angular rates for which these rotations turn smoothly: give rotations at more times in between."
            )
        return found

    def __call__(self, times: Any, order: int = 0) -> Any:
        """The rotations at times, a number or a vector; of order 1 the angular rates, of order 2 the angular accelerations, (..., 3)."""
        if order not in (0, 1, 2):
            raise ValueError("`order` must be 0, 1 or 2.")
        t = in_double(operand(times))
        if np.ndim(t) > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        v, *rates = (self.interpolator(t, nu) for nu in range(order + 1))
        if order == 1:
            return _angular_rate(v, *rates)
        if order == 2:
            return _angular_acceleration(v, *rates)
        return self.rotations[_segment(raw(self.times), raw(t))] * Rotation.from_rotvec(v)


def geometric_slerp(start: Any, end: Any, t: Any, tol: float = 1e-7) -> Any:
    """Points on the great circle from one unit vector to another, at shares t from 0 to 1; differentiable by all.

    >>> import numpy as np, tapegrad as tg
    >>> tg.spatial.geometric_slerp(tg.tensor([1.0, 0.0]), [0.0, 1.0], 0.5)
    tensor([0.70710678, 0.70710678])
    """
    if not holds_tensor((start, end, t)):
        from scipy.spatial import geometric_slerp as plain

        return plain(start, end, t, tol)
    start, end, t = (in_double(operand(v)) for v in (start, end, t))
    if np.ndim(start) != 1 or np.shape(start) != np.shape(end) or np.shape(start)[0] < 2:
        raise ValueError("geometric_slerp takes two unit vectors of one length, 2 or more.")
    if np.ndim(t) > 1:
        raise ValueError("The interpolation parameter value must be one dimensional.")
    angle = (
        np.arctan2(np.sqrt(np.sum((start - end) ** 2)), np.sqrt(np.sum((start + end) ** 2))) * 2.0
    )
    if _is_plain(raw(angle)):
        for v in (raw(start), raw(end)):
            if not np.isclose(np.linalg.norm(v), 1.0, rtol=1e-9, atol=0):
                raise ValueError("start and end must be unit vectors")
        if np.any((raw(t) < 0) | (raw(t) > 1)):
            raise ValueError("interpolation parameter must be in [0, 1]")
        if not tol < raw(angle) < math.pi - tol:
            raise NotDifferentiable(
                "geometric_slerp was asked between tracked ends that are equal or opposite, where the circle through both is not one. "
                "Move one of them."
            )
    share = t[..., None]
    return (np.sin((1.0 - share) * angle) * start + np.sin(share * angle) * end) / np.sin(angle)


def procrustes(data1: Any, data2: Any) -> tuple[Any, Any, Any]:
    """Two sets of points (n, m), centred and of size 1, the second turned onto the first, and the sum of squares that is left.

    >>> import numpy as np, tapegrad as tg
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> tg.spatial.procrustes(tg.tensor(square), 3.0 * square[:, ::-1] + 1.0)[2].abs() < 1e-12
    tensor(True)
    """
    if not holds_tensor((data1, data2)):
        from scipy.spatial import procrustes as plain

        return plain(data1, data2)
    from ..ops.patterned import orthogonal_procrustes

    sets = []
    for data in (data1, data2):
        x = in_double(operand(data))
        if np.ndim(x) != 2 or not np.size(x):
            raise ValueError(
                "Input matrices must be two-dimensional"
                if np.size(x)
                else "Input matrices must be >0 rows and >0 cols"
            )
        x = x - np.mean(x, axis=0)
        size = np.sqrt(np.sum(x * x))
        if _is_plain(raw(size)) and raw(size) == 0:
            raise ValueError("Input matrices must contain >1 unique points")
        sets.append(x / size)
    first, second = sets
    if np.shape(first) != np.shape(second):
        raise ValueError("Input matrices must be of same shape")
    turn, scale = orthogonal_procrustes(first, second)
    second = (second @ np.swapaxes(turn, -1, -2)) * scale
    return first, second, np.sum((first - second) ** 2)


__all__ = ["Rotation", "RotationSpline", "Slerp"]


def __dir__() -> list[str]:
    return __all__
