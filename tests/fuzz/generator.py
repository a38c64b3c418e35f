"""The array dialect: a statement is run with NumPy as soon as it is written, and kept if it gives finite numbers of moderate size.

So no rule about shapes or types is written here: an expression that NumPy refuses is drawn again. `Writer.values` holds what each name is
bound to after the statements so far. Stores go to arrays that share no memory with an argument. Some programs read what stands around
them (SURROUNDINGS), as globals or in cells; some have arrays long enough for the vector loops of machine code and the blocks of kernels.
"""

from __future__ import annotations

import random
import textwrap
import warnings
from typing import Any

import numpy as np

import tapegrad as tg
from tests.fuzz.program import LAYOUTS, Leaf, Program

SIZE, LARGEST = 48, 200.0
SHAPES = [(), (3,), (4,), (5,), (2, 3), (3, 3), (4, 3), (3, 4), (4, 4), (2, 3, 2), (1, 4), (3, 1)]
LONG = [(17,), (37,), (70,), (130,), (9, 11), (3, 40), (33, 2), (5, 3, 6)]
LONGEST = 600
SURROUNDINGS = """KN = 0.7
KA = np.array([0.5, -0.3, 0.2])
KD = {'k': 1.5, 's': (2, np.array([[0.4], [0.1], [-0.6]]))}
def KH(t, s=0.5, *, c=KA):
    return np.tanh(t) * s + c[0]
class KC:
    a = 0.3
    def __init__(self):
        self.b = [np.array([0.1, 0.9, -0.4]), 2]
    def __call__(self, t):
        return t * self.a + self.b[0][1]
KO = KC()
KL = lambda t: KH(t, KN) * KD['k']
"""
"""What a function may see beside its arguments."""
CLOSED = ["({0} * KN)", "KH({0})", "KH({0}, s=KN)", "({0} + KA[0])", "(KD['k'] * {0})", "(KD['s'][1] + {0})", "(KD['s'][0] * {0})", "(KO.a * {0})", "KO({0})", "(KA * {0})", "({0} @ KA)", "(KA @ {0})", "KL({0})", "(KO.b[0] - {0})", "np.interp({0}, np.sort(KA), KO.b[0])", "np.where({0} > KN, {0}, KD['k'])", "sum({0} * k for k in KA)", "({0})[..., None] * KA"]  # fmt: skip
SMOOTH = ["sin", "cos", "tanh", "arctan", "square", "expm1", "negative", "arcsinh", "conj", "exp", "sinh", "cosh", "sinc", "exp2", "positive", "deg2rad", "degrees", "absolute", "reciprocal", "i0", "log1p", "arctanh", "rint", "floor", "sign", "angle", "tan"]  # fmt: skip
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
    "np.arcsin(0.9 * np.sin({0}))",
    "np.cbrt(1.5 + np.abs({0}))",
    "np.reciprocal(1.5 + {0} ** 2)",
    "np.exp2(-({0} ** 2))",
    "np.log2(1.5 + np.abs({0}))",
    "np.log10(1.5 + np.abs({0}))",
    "np.minimum({0}, 0.4)",
    "np.fmax({0}, -0.2)",
    "np.fmin({0}, {0} * {0})",
    "np.copysign({0}, -0.5)",
    "np.copysign(0.7, {0})",
    "np.mod({0}, 1.7)",
    "np.fmod({0}, 1.3)",
    "({0} % 0.9)",
    "({0} // 0.9) * {0}",
    "np.floor({0}) * {0}",
    "np.heaviside({0}, 0.5) * {0}",
    "(2.0 ** {0})",
    "({0}).astype(np.float32)",
    "({0}).astype('complex64')",
    "({0} > 0.1).astype(float) * {0}",
    "np.angle({0} + 1.5j)",
    "np.abs({0} + 0.3j)",
    "np.divmod({0}, 0.7)[1]",
    "np.modf({0})[0]",
    "np.frexp({0})[0]",
    "np.ldexp({0}, 1)",
    "np.clip({0}, None, 0.5)",
    "np.clip({0}, 0.5 * {0}, 0.9)",
    "({0}).clip(-0.5, 0.5)",
    "np.logaddexp2({0}, 0.3)",
    "np.select([{0} > 0.5, {0} < -0.5], [{0}, -2 * {0}], 0.25)",
    "np.piecewise({0}, [{0} > 0.3], [lambda t: t * t, lambda t: 0.5 * t])",
    "np.where({0} > 0, np.log(np.where({0} > 0, {0}, 1.0)), 0.0)",
    "np.where(np.abs({0}) > 0.3, 1 / {0}, 0.0)",
    "np.where({0} > 0.2, 0.0, np.sqrt(1.0 + np.abs({0})))",
    "np.unwrap({0})",
    "np.polyval([0.2, -0.3, 0.1], {0})",
    "tg.special.expit({0})",
    "tg.special.erf({0})",
    "tg.special.gammaln(1.5 + np.abs({0}))",
    "tg.special.softmax({0}, axis=-1)",
    "tg.special.xlogy({0}, 1.5 + {0} ** 2)",
    "tg.logsumexp({0})",
    "tg.logsumexp({0}, axis=0)",
    "abs({0})",
    "pow({0}, 2)",
    "(-{0})",
    "(+{0})",
    "({0} * 1j).imag",
    "({0} > 0.1)",
    "np.isfinite({0}) * {0}",
    "np.logical_and({0} > -0.4, {0} < 0.6)",
    "np.ones_like({0}) * {0}",
    "np.full_like({0}, 0.5)",
    "np.multiply({0}, 2.0, where={0} > 0.1, out=np.zeros_like({0}))",
    "np.sin({0}, where=np.abs({0}) < 0.9, out={0} * 0.5)",
    "np.add({0}, 0.5, dtype=np.float32)",
    "np.maximum({0}, 0.2, out=np.zeros_like({0}))",
    "np.hypot.reduce({0})",
    "np.logaddexp.reduce({0})",
    "np.subtract.accumulate({0})",
    "np.divide.reduce(1.5 + np.abs({0}))",
    "np.linspace(0.0, np.sum({0}), 4)",
]
REDUCTIONS = ["sum", "mean", "max", "min", "prod", "std", "var", "ptp", "median", "linalg.norm", "average", "nansum", "nanmax", "nanmin", "nanmean", "nanprod", "nanstd", "nanmedian", "add.reduce", "multiply.reduce", "maximum.reduce", "minimum.reduce", "argmax", "count_nonzero", "any"]  # fmt: skip
OVER = ["", "", ", axis=0", ", axis=-1", ", axis=1", ", axis=0, keepdims=True", ", axis=-1, keepdims=True", ", axis=(0, 1)", ", axis=(0, -1)", ", axis=()", ", keepdims=True", ", axis=None", ", ddof=1", ", axis=0, ddof=1", ", initial=0.3", ", axis=0, initial=0.6", ", where={0} > 0.1, initial=0.2", ", where={0} > 0.1", ", axis=-1, where=np.abs({0}) < 0.9", ", dtype=np.float32", ", dtype=float"]  # fmt: skip
METHODS = ["sum", "mean", "std", "var", "max", "min", "prod", "cumsum", "cumprod", "argmin", "any"]
ALONG = [
    *(f"np.{f}({{0}}, axis={{1}})" for f in ("cumsum", "cumprod", "sort", "diff", "flip", "fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "argsort", "gradient", "nancumsum", "unwrap", "trapezoid", "ptp")),
    "np.cumulative_sum({0}, axis={1}, include_initial=True)", "np.partition({0}, 1, axis={1})", "np.roll({0}, 2, axis={1})", "np.repeat({0}, 2, axis={1})",
    "np.delete({0}, 0, axis={1})", "np.insert({0}, 1, 0.5, axis={1})", "np.append({0}, {0} * 0.5, axis={1})", "np.take({0}, [1, 0, 1], axis={1})",
    "np.take({0}, 1, axis={1})", "np.compress([True, False, True], {0}, axis={1})", "np.apply_along_axis(lambda t: t * t[0], {1}, {0})",
    "np.diff({0}, n=2, axis={1})", "np.diff({0}, prepend=0.5, axis={1})", "np.concatenate([{0}, {0}[::-1]], axis={1})", "np.stack([{0}, 2 * {0}], axis={1})",
    "np.add.accumulate({0}, axis={1})", "np.multiply.accumulate({0}, axis={1})", "np.maximum.accumulate({0}, axis={1})", "np.percentile({0}, 30, axis={1})",
    "np.quantile({0}, [0.25, 0.7], axis={1})", "np.take_along_axis({0}, np.argsort({0}, axis={1}), axis={1})", "np.linalg.norm({0}, axis={1})",
    "np.linalg.norm({0}, ord=1, axis={1})", "np.linalg.norm({0}, ord=np.inf, axis={1})", "np.linalg.norm({0}, 3, axis={1})", "np.split({0}, 2, axis={1})[1]",
    "np.array_split({0}, 2, axis={1})[0]", "np.expand_dims({0}, {1})", "np.fft.fftshift({0}, axes={1})", "np.average({0}, weights=1.5 + np.abs({0}), axis={1})",
    "np.sort({0}, axis={1})[::-1]", "np.flip(np.cumsum({0}, axis={1}), axis={1})", "tg.special.softmax({0}, axis={1})", "tg.logsumexp({0}, axis={1}, keepdims=True)",
]  # fmt: skip
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
    "sum(r for r in {0})",
    "np.linalg.norm({0})",
    "np.fft.irfft(np.fft.rfft({0}))",
    "np.count_nonzero({0} > 0) * {1}",
    "{0}.argmax() * {1}",
    "({0} @ {1})",
    "({0}.T @ {0})",
    "np.matmul({0}[None], {1})",
    "{0}.dot({1})",
    "np.vdot({0}, {1})",
    "np.vecdot({0}, {1})",
    "np.einsum('ij,jk', {0}, {1})",
    "np.einsum('ij->j', {0})",
    "np.einsum('ij,ij->', {0}, {1})",
    "np.einsum('ij,j->i', {0}, {1})",
    "np.einsum('i,j->ji', {0}, {1})",
    "np.einsum('ijk->ki', {0})",
    "np.tensordot({0}, {1}, axes=([0], [0]))",
    "np.cross({0}[..., :3], {1}[..., :3])",
    "np.linalg.slogdet({0} @ {0}.T + 2.0 * np.eye(len({0})))[1]",
    "np.linalg.pinv({0} @ {0}.T + 3.0 * np.eye(len({0})))",
    "np.linalg.pinv({0} + 3.0 * np.eye(*{0}.shape))",
    "np.linalg.matrix_power(0.5 * {0}, 3)",
    "np.linalg.multi_dot([{0}, {0}.T, {0}])",
    "np.linalg.lstsq({0} + 3.0 * np.eye(*{0}.shape), {1}, rcond=None)[0]",
    "np.linalg.norm({0}, 'fro')",
    "np.linalg.norm({0} + 3.0 * np.diag(np.arange(len({0}))), 2)",
    "np.linalg.eigvalsh({0} @ {0}.T + 9.0 * np.diag(np.arange(len({0}))))",
    "np.linalg.eigh({0} @ {0}.T + 9.0 * np.diag(np.arange(len({0}))))[1] ** 2",
    "np.linalg.svd({0} + 5.0 * np.eye(*{0}.shape) * np.arange(1, {0}.shape[1] + 1), compute_uv=False)",
    "np.linalg.qr({0} + 3.0 * np.eye(*{0}.shape))[1]",
    "np.linalg.qr({0} + 3.0 * np.eye(*{0}.shape)).Q",
    "np.linalg.solve({0} @ {0}.T + 3.0 * np.eye(len({0})), {1} @ {1}.T)",
    "np.linalg.inv({0} + 5.0 * np.eye(len({0})))",
    "np.linalg.cholesky(np.stack([{0} @ {0}.T + 2.0 * np.eye(len({0}))] * 2))",
    "np.trace({0}, offset=1)",
    "np.diagonal({0}, 1)",
    "np.diagflat({0})[:3, :3]",
    "np.hstack(({0}, {1}))",
    "np.column_stack(({0}, {1}))",
    "np.dstack(({0}, {1}))",
    "np.block([[{0}, 2 * {0}], [{0} * {0}, {0}]])",
    "np.concatenate(({0}, {1}), axis=None)",
    "np.meshgrid({0}, {1})[0]",
    "np.broadcast_arrays({0}, {1})[0] * {1}",
    "np.append({0}, {1})",
    "np.extract({0} > 0.1, {0})",
    "np.choose(({0} > 0.1).astype(int), [{0}, 2 * {0}])",
    "np.searchsorted([-0.5, 0.1, 0.8], {0}) * {0}",
    "np.digitize({0}, [-0.5, 0.1, 0.8]) * {0}",
    "np.bincount(np.arange({0}.size) % 3, weights={0}.ravel())",
    "np.correlate({0}, {1}, 'full')",
    "np.convolve({0}, {1}, 'same')",
    "np.interp(0.3, [-1.0, 0.1, 1.2], {0}[:3])",
    "np.polyval({0}, 0.5)",
    "np.vander({0}, 3)",
    "np.polymul({0}, {1})",
    "np.ediff1d({0})",
    "np.cov({0})",
    "np.fft.fft2({0})",
    "np.fft.rfft({0}, n=5)",
    "np.fft.irfft({0}, n=4)",
    "np.abs(np.fft.fft({0}))",
    "np.resize({0}, (2, 2))",
    "np.roll({0}, (1, 2), axis=(0, 1))",
    "np.repeat({0}, [1, 2, 0], axis=0)",
    "np.tile({0}, (2, 1))",
    "np.pad({0}, 1, mode='edge')",
    "np.pad({0}, 1, mode='reflect')",
    "np.pad({0}, 1, mode='wrap')",
    "np.pad({0}, (1, 0), constant_values=0.5)",
    "np.sort({0}, axis=None)",
    "np.unique({0})",
    "np.subtract.outer({0}, {1})",
    "np.multiply.outer({0}, {1})",
    "np.minimum({0}, {1})",
    "np.fmax({0}, {1})",
    "np.hypot({0}, {1} + 1.5)",
    "np.logaddexp({0}, {1})",
    "np.power(0.5 + np.abs({0}), {1})",
    "(0.5 + np.abs({0})) ** {1}",
    "np.copysign({0}, {1})",
    "np.remainder({0}, 1.5 + np.abs({1}))",
    "({0} / (1.5 + np.abs({1})))",
    "np.where({0} > 0.2, {0}, {1})",
    "np.nonzero({0} > 0.1)[0] * 0.5",
    "{0}[np.nonzero({0} > 0.1)]",
    "{0}[np.argmax({0}, axis=0)]",
    "{0}[np.argsort({0})]",
    "{0}[np.where({0} > 0)[0]]",
    "np.max({0}, axis=0) - np.min({1})",
    "max({0}.ravel())",
    "np.sum({0} * {1}, axis=0, keepdims=True)",
    "tg.where({0} > 0, {0}, {1})",
    "np.apply_over_axes(np.sum, {0}, [0, 1])",
    "np.rollaxis({0}, 1)",
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
PLACES = ["[0]", "[-1]", "[::2]", "[1:]", "[::-1]", "[1::2]", "[...]", "[:]", "[..., 0]", "[:, 1]", "[:, ::-1]", "[..., ::2]", "[[0, 1]]", "[[1, 0]]", "[[0, 1], [1, 0]]", "[:, [1, 0]]", "[{0} > 0.1]", "[np.arange({0}.size).reshape({0}.shape) % 3 == 0]", "[~({0} > 0.3)]", "[np.abs({0}) < 0.8]", "[:-1, 1:]", "[0, 1]", "[1, ...]", "[np.array([True, False] * {0}.shape[0])[:{0}.shape[0]]]", "[:, None, 0]", "[()]", "[np.int64(1)]", "[1:1]", "[np.ix_([0, 1], [0, 1])]", "[-1, -1]", "[[-1, 0], 0]", "[:, [True, False] * ({0}.shape[-1] // 2) + [True] * ({0}.shape[-1] % 2)]", "[..., None]", "[None, 0]", "[::2, ::-1]", "[1:, [0, 1]]", "[np.array([[0], [1]]), [0, 1]]", "[np.argmax({0}, axis=0)]", "[np.argsort({0}.ravel())[:2] % len({0})]", "[{0} == np.max({0})]", "[np.nonzero({0} > 0)]", "[np.newaxis, ..., 0]"]  # fmt: skip
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
        self.size = LONGEST if self.r.random() < 0.06 else SIZE
        self.around = self.r.choice(["", "", "", "", "globals", "cells"])
        self.scope: dict[str, Any] = {"np": np, "tg": tg}
        if self.around:
            exec(SURROUNDINGS, self.scope)
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
                else self.r.choice(["int64", "int64", "int32", "uint8"])
                if u < 0.92
                else "bool"
            )
            if u < 0.1 and self.complex:
                dtype = "complex128"
        shape = (
            self.r.choice(LONG if self.size > SIZE and self.r.random() < 0.7 else SHAPES)
            if self.r.random() > 0.02
            else self.r.choice([(0,), (0, 3), (2, 0), (2, 0, 3)])
        )
        python = shape == () and dtype == "float64" and self.r.random() < 0.5
        layout = "C" if self.r.random() < 0.4 else self.r.choice(list(LAYOUTS))
        return Leaf(shape, dtype, layout, python)

    def parameter(self) -> Any:
        if self.r.random() < 0.85:
            return self.leaf()
        kind = "float64" if self.r.random() < 0.7 else "float32"
        parts = [self.leaf(kind) for _ in range(2)]
        return self.r.choice(
            [
                tuple(parts),
                list(parts),
                {"b": parts[0], "a": parts[1]},
                ({"p": parts[0]}, [parts[1]]),
            ]
        )

    def unpack(self, name: str, p: Any) -> None:
        if isinstance(p, dict):
            self.lines.append(f"    {name}0, {name}1 = {name}['a'], {name}['b']")
        elif isinstance(p, tuple) and isinstance(p[0], dict):
            self.lines.append(f"    {name}0, {name}1 = {name}[0]['p'], {name}[1][0]")
        elif not isinstance(p, Leaf):
            self.lines.append(f"    {name}0, {name}1 = {name}")

    # --------------------------------------------------------------------------------------------- running

    def program(self, *lines: str) -> Program:
        source = f"def f({', '.join(self.names)}):\n" + "\n".join(lines or ["    pass"])
        if lines == ("pass",):
            source = f"def f({', '.join(self.names)}): pass"
        if self.around == "globals":
            source = SURROUNDINGS + source
        elif self.around:
            inner = textwrap.indent(f"{SURROUNDINGS}{source}\nreturn f", "    ")
            source = f"def made():\n{inner}\nf = made()"
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
        # What a function sees in cells is among what `locals` tells.
        values = {k: v for k, v in values.items() if not k.startswith("K")}
        return values if all(sound(v, self.size) for v in values.values()) else None

    def evaluate(self, text: str) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                value = eval(text, dict(self.scope), dict(self.values))
            except Exception:
                raise Unlucky from None
        if not sound(value, self.size) or value is None:
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
        if self.around and self.r.random() < 0.25:
            return self.r.choice(CLOSED).format(one())
        if u < 0.24:
            return f"np.{self.r.choice(SMOOTH)}({one()})"
        if u < 0.36:
            return self.r.choice(GUARDED).format(one())
        if u < 0.60:
            op = self.r.choice(["+", "-", "*", "*", "+"])
            return f"({one()} {op} {one() if self.r.random() < 0.8 else self.number_text()})"
        if u < 0.70:
            inner, extra, name = one(), self.r.choice(OVER), self.r.choice(REDUCTIONS)
            if "dtype" in extra and ("std" in name or "var" in name):
                name = "sum"  # a spread of equal numbers in another type is rounding alone
            if self.r.random() < 0.2:
                return f"{self.bracketed(inner)}.{self.r.choice(METHODS if 'dtype' not in extra else METHODS[:2])}({extra[2:].format(inner)})"
            return f"np.{name}({inner}{extra.format(inner)})"
        if u < 0.76:
            return self.r.choice(ALONG).format(self.bracketed(one()), self.r.choice([0, -1, 1]))
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
                    [
                        "{0} * 1.0",
                        "{0} + 0.5",
                        "{0}.T * 0.5",
                        "{0}.copy()",
                        "-{0}[::-1]",
                        "np.zeros_like({0})",
                        "np.full_like({0}, 0.5)",
                        "np.ones_like({0}) * 0.5",
                        "{0}.T.copy()",
                        "np.copy({0}[::-1])",
                        "{0}.astype(np.float64)",
                        "np.stack([{0}, {0}])",
                        "{0}.copy(order='F')",
                        "np.tile({0}, (2, 1))",
                    ]
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
                        f"{v}.flat[1] = np.sum({e})",
                        f"np.subtract.at({v}, [0, 0], {e})",
                        f"np.multiply.at({v}, [0, 1, 1], 0.5)",
                        f"np.maximum.at({v}, [0, 1, 0], 0.3)",
                        f"np.negative.at({v}, [0, 0, 1])",
                        f"np.put_along_axis({v}, np.argmax({v}, axis=0, keepdims=True), 0.5, axis=0)",
                        f"np.copyto({v}[::2], 0.5 * {v}[::2])",
                        f"np.copyto({v}.T, {e})",
                        f"{v}[{c}] = {v}[{c}] * 0.5",
                        f"{v}[1:] += {v}[:-1]",
                        f"{v}[1:] = {v}[:-1] * 0.5",
                        f"{v}[:-1] -= {v}[1:]",
                        f"{v} += {v}.T",
                        f"{v}[:] = {v}[::-1]",
                        f"{v}[::-1] -= {v}",
                        f"{v}[0], {v}[1] = {v}[1], {v}[0]",
                        f"{v}[0], {v}[-1] = 0.5 * {v}[-1], np.sin({v}[0])",
                        f"{v}[[0, 1]] = {v}[[1, 0]]",
                        f"{v} **= 2",
                        f"{v} /= 1.5 + np.abs({v})",
                        f"{v}[...] = np.where({c}, {v}, {e})",
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
                f"np.clip({v}, -0.6, 0.6, out={v})",
                f"np.add.accumulate({v}, out={v})",
                f"np.square({v}[::-1], {v})",
                f"{v}.clip(-0.5, 0.5, out={v})",
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
                [f"{out} = tg.vmap(lambda t, s: t * np.sum(s), in_axes=(0, None))({a}, {b})"],
                [f"{out} = tg.vmap(lambda t: np.sin(t), in_axes=-1, out_axes=-1)({a})"],
                [f"{out} = tg.vmap(lambda t: np.where(t > 0.1, t * {e}, 0.5))({a})"],
                [f"{out} = tg.associative_scan(np.add, {a})"],
                [
                    f"{out} = tg.switch({self.r.randrange(2)}, [lambda t: np.sin(t), lambda t: t * {e}], {a})"
                ],
                [
                    f"def {out}f(c, s):",
                    "    u = c * 0.5",
                    "    u[0] = np.sum(s) * 0.1",
                    f"    return u + np.sum({b}), np.sum(u)",
                    f"{out}, {out}s = tg.scan({out}f, np.zeros(3) + np.sum({b}) * 0.1, {a}{k})",
                ],
                [
                    f"{out} = tg.fori_loop(0, 3, lambda i, c: {{'a': np.sin(c['a']) + i, 'b': c['b'] * 0.5 + np.sum(c['a'])}}, {{'a': {a}, 'b': np.sum({b})}})['b']"
                ],
                [
                    f"{out} = tg.scan(lambda c, s: (c + np.sum(s[0]) * s[1], c), 0.5, ({a}, {a}[::-1]), reverse=True{k})[0]"
                ],
                [
                    f"{out} = tg.fori_loop(0, len({a}), lambda i, c: c + np.tanh({a}[i]) * (i + 1), 0.0 * {a}[0])"
                ],
                [
                    f"{out} = tg.checkpoint(lambda t: tg.scan(lambda c, s: (c * np.sum(s), c), np.sum({b}), t)[1])({a})"
                ],
                [
                    f"{out} = tg.cond(np.sum({a}) > 0.2, lambda t: t * {e}, lambda t: tg.checkpoint(np.sin)(t) + 0.0 * ({e}), {a})"
                ],
                [f"{out} = tg.grad(lambda t: np.sum(np.sin(t) * {e}))({a})"],
                [f"{out} = tg.jvp(lambda t: np.sin(t) * np.sum({b}), ({a},), ({a},))[1]"],
                [f"{out} = tg.vjp(lambda t: t * t, {a})[1]({a})[0]"],
                [f"{out} = tg.hvp(lambda t: np.sum(t ** 3) * np.sum({b}))({a}, {a})"],
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
                [
                    f"{h}a = []",
                    f"def {h}(t):",
                    f"    {h}a.append(t * 0.5)",
                    "    return np.sin(t)",
                    f"{out} = np.sum({h}({v})) * {h}({w}) + np.sum({h}a[0]) * len({h}a)",
                ],
                [
                    f"{h}n = 0.5 * np.sum({v})",
                    f"def {h}(t):",
                    f"    nonlocal {h}n",
                    f"    {h}n = {h}n + 0.1 * np.sum(t)",
                    f"    return t * {h}n",
                    f"{out} = {h}({w}) + {h}({closed}) * {h}n",
                ],
                [
                    f"class {h}:",
                    "    def __init__(self, t):",
                    "        self.t, self.n = t, 0.5",
                    "    def __call__(self, s):",
                    "        self.n = self.n + 1.0",
                    "        return self.t * s + self.n",
                    f"{h}o = {h}({v})",
                    f"{out} = {h}o({w}) + {h}o(2.0)",
                ],
                [
                    f"{h} = [{v}, {w}, {closed}]",
                    f"for {h}k, {h}t in enumerate({h}):",
                    f"    {h}[{h}k] = np.tanh({h}t) * ({h}k + 1)",
                    f"{out} = {h}[0] + np.sum({h}[1]) * {h}[-1]",
                ],
                [
                    f"{h} = {{'a': {v}, 'b': {w}}}",
                    f"for {h}k in {h}:",
                    f"    {h}[{h}k] = 0.5 * {h}[{h}k]",
                    f"{h}['c'] = np.sum({h}.pop('a'))",
                    f"{out} = {h}['c'] * {h}['b']",
                ],
                [f"{out} = sum(p * np.sum(q) for p, q in zip([{v}, {w}], ({closed}, 2.0)))"],
                [f"{out}, *{h} = {v}", f"{out} = {out} * 0.5 + np.sum({h}[0])"],
                [f"{out} = ({h} := {v}) + np.sum({h} * {h})"],
                [f"{out} = max(np.sum({v}), np.sum({w})) * {closed}"],
                [
                    f"{h} = lambda *t, **k: sum(np.sum(x) for x in t) * k['s']",
                    f"{out} = {h}({v}, {w}, s={closed})",
                ],
                [
                    f"{h} = (lambda g: lambda t: g(g(t)))(lambda t: 0.5 * t + np.sum({w}) * 0.1)",
                    f"{out} = {h}({v})",
                ],
                [
                    "try:",
                    f"    {out} = {v}[{{}}.get('k', 7)]".replace("{{}}", "{}"),
                    "except (IndexError, TypeError):",
                    f"    {out} = {v} * 0.5",
                ],
                self.writing(h, out, v),
            ]
        )

    def writing(self, h: str, out: str, v: str) -> list[str]:
        """A helper that writes into what it is given, or into a buffer that it makes and fills."""
        own = self.own()
        if not own:
            raise Unlucky
        target = self.r.choice(own)
        e = self.like(target)
        return self.r.choice(
            [
                [
                    f"def {h}(t):",
                    f"    t[0] = 0.5 * t[-1] + np.sum({self.name()}) * 0.1",
                    "    return t",
                    f"{out} = {h}({target}) * 1.0",
                ],
                [
                    f"def {h}(t):",
                    "    u = np.zeros_like(t)",
                    "    for k in range(len(t)):",
                    "        u[k] = np.sin(t[k]) if k % 2 else t[k] * k",
                    "    return u",
                    f"{out} = {h}({v})",
                ],
                [
                    f"{h} = {target}",
                    f"{h} += {e}",
                    f"{out} = {target} + np.sum({h})",
                ],
                [
                    f"{h} = {{'w': {target}}}",
                    f"{h}['w'] *= 0.5",
                    f"{h}['w'][0] = np.sum({h}['w'])",
                    f"{out} = {target} * 1.0",
                ],
                [
                    f"{out} = np.zeros(({v}).shape)",
                    f"{out} = {out} + {v}",
                    f"{out}[1:] += {out}[:-1] * {out}[1:]",
                ],
                [
                    f"{h} = [{target}[k:k + 2] for k in range(2)]",
                    f"{h}[0][...] = 0.5 * {h}[1]",
                    f"{out} = np.sum({h}[1]) * {target}",
                ],
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


def sound(value: Any, size: int = SIZE) -> bool:
    if isinstance(value, dict):
        return all(sound(v, size) for v in value.values())
    if isinstance(value, tuple | list):
        return all(sound(v, size) for v in value)
    if isinstance(value, np.ndarray | np.generic | float | int | complex):
        array = np.asarray(value)
        if array.dtype.kind not in "fciub" or array.size > size or array.ndim > 4:
            return False
        return bool(np.all(np.isfinite(array)) and np.max(np.abs(array), initial=0) <= LARGEST)
    return True


def write(number: int) -> Program:
    """The program of this number; numbers whose program is too short are used all the same."""
    return Writer(number).write()
