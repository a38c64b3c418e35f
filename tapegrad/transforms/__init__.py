"""Functions of functions: derivatives, loops, batches.

derivatives  grad, vjp, jvp, jacobian, hessian, hvp, linearize
loops        scan, fori_loop, while_loop, cond, checkpoint: one record for a loop
batching     vmap
labelled     labelled arrays (pandas, xarray) as trees
records      dataclasses and attrs classes as trees
"""
