"""Bridges to other libraries: each module knows one guest, and imports it when it is used.

`solvers.py` hands exact derivatives to `scipy.optimize`; `torch.py`, `jax.py` turn functions into theirs and back.
"""
