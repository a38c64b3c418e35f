"""Interpolants as functions of their data: what `tg.interpolate` offers, by kind.

`piecewise` has polynomials between breakpoints and the cubic interpolants made of them, `splines` B-splines, `tables` values on
lines and grids, `scattered` values at points in space. All are written in ops: which piece a query lies in is a constant, and the
rest is differentiated by data, places and queries, in both modes and to any order, under `tg.compile` too.

Invariant: an interpolant without tensors, asked at plain numbers, gives plain arrays that are SciPy's to rounding.
"""
