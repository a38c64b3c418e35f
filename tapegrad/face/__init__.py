"""NumPy's and PyTorch's manners: how `np.sin(t)`, `t[i] = v`, `tg.zeros` and `t.relu()` reach ops.

dispatch   NumPy's functions called with tensors
creation   tensors from nothing
dtypes     PyTorch's names of dtypes
inplace    stores, and what they mean for the tape
mutators   PyTorch's methods that end with an underscore
methods    methods that are made from ops
buffers    plain arrays that are stored into while a transform runs
adoption   copies of functions that use them
reaching   what a function reaches by name
standing   copies that are equal to their functions
"""
