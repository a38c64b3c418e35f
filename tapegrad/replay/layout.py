"""Where things lie: CPython's and NumPy's object layouts, and the machine's own memory.

Idea: the machine reads lists, ints, floats and arrays through their memory, because asking Python for
an array's address costs more than differentiating a small op. Every offset it relies on is here, and so are
the words of the frame (the memory of one call), so that Python and nopython code cannot disagree.

Data: byte offsets into objects (H is the object header), word indices into a frame and its records.

Invariant: nothing here is believed. `selftest.py` reads sample objects through the compiled machine before the
first use; where one of these offsets is wrong, replay is unavailable and the sweep does the work.
"""

from __future__ import annotations

import sys

from ..core.tape import STRIDE

# ------------------------------------------------------------------------------------------------- objects

H = object.__basicsize__
TYPE = H - 8
REFCOUNT = 0
REFCOUNT_BITS = 64 if sys.version_info < (3, 12) else 32  # 3.12 keeps flags in the upper half

LIST_SIZE, LIST_ITEMS = H, H + 8
TUPLE_SIZE, TUPLE_ITEMS = H, tuple.__basicsize__
SLICE_START, SLICE_STOP, SLICE_STEP = H, H + 8, H + 16

# int: 3.11 keeps the signed number of digits; 3.12 keeps (number of digits << 3 | sign).
INT_HEAD, INT_DIGITS = H, H + 8
INT_TAGGED = sys.version_info >= (3, 12)
DIGIT_BITS = sys.int_info.bits_per_digit

NUMBER = H  # where float, complex and NumPy scalars hold their value

ARRAY_DATA, ARRAY_NDIM, ARRAY_SHAPE, ARRAY_STRIDES = H, H + 8, H + 16, H + 24
ARRAY_BASE, ARRAY_DTYPE, ARRAY_FLAGS = H + 32, H + 40, H + 48
C_CONTIGUOUS, ALIGNED = 0x1, 0x100
DENSE = C_CONTIGUOUS | ALIGNED
KEEP_ORDER = 2  # NumPy's NPY_KEEPORDER
# dtype: kind, type and byteorder are characters, num the number of its scalar type.
DTYPE_BYTEORDER, DTYPE_NUM = H + 10, H + 12
NUM_FLOAT32, NUM_FLOAT64, NUM_COMPLEX128 = 11, 12, 15
NATIVE_ORDER = ord("=")

# ------------------------------------------------------------------------------------------------- entries

ITEM = 8
ENTRY = STRIDE * ITEM
AT_OP, AT_SLOT, AT_IN0, AT_IN1, AT_X, AT_Y, AT_OUT, AT_KW = range(0, ENTRY, ITEM)

# --------------------------------------------------------------------------------------------------- kinds
# What a value is, as far as kernels care. The first three have kernels; the others can be constants
# of such a program, converted as they are read.

FLOAT64, FLOAT32, COMPLEX128, PY_FLOAT, PY_INT, BOOL, INTP, OTHER = range(8)
KIND_NAMES = ("float64", "float32", "complex128")
SIZES = (8, 4, 16)

# How the machine goes back through an op (column STEP of the table of ops).

(BY_PYTHON, BY_KERNEL, BY_SUM, BY_MEAN, BY_COPY, BY_BROADCAST, BY_TRANSPOSE, BY_SWAPAXES, BY_MOVEAXIS,
 BY_INDEX, BY_PRODUCT, BY_CONCATENATE, BY_STACK, BY_RESHAPE, BY_STORE, BY_TAKE, BY_EXTREME, BY_RUNNING_SUM, BY_OTHERS,
 BY_RUNNING_PRODUCT, BY_POWER, BY_REAL, BY_IMAG, BY_CONJ, BY_SCATTER, BY_EXPONENTIALS) = range(26)  # fmt: skip
STEP_COUNT = 26

# Words of one row of the table of ops: the step, the number of operands (0: variadic), then for each of three
# operands three words of its kernel's address per kind, its constant partial (a float64), and which values it reads; then
# a bit per operand whose rule needs saved values, or SAVES_ALWAYS, whichever operands are tracked; last, how many values a
# kernel is given: the operands and, behind them, settings.

OP_STEP, OP_ARITY, OP_KERNELS, OP_CONSTANT, OP_READS, OP_SAVES, OP_GIVEN = 0, 1, 2, 11, 14, 17, 18
OP_ROW = 19
SAVES_ALWAYS = -1
READS_X, READS_Y, READS_Z, READS_OUT = 1, 2, 4, 8

# Addresses that are no address.
NOT_LOADED, UNAVAILABLE, CONSTANT = 0, 1, 2

# -------------------------------------------------------------------------------------------- the machine

BLOCK = 256
"""Elements that are gathered, converted or summed at a time: a few KiB, so they stay in the first cache."""

MAX_RANK = 32

# What `walk` answers.
DONE, STOP, WATCHED, MISSING, NO_MEMORY = range(5)

# What `give` answers: taken; not the entry's dtype and shape; the entry's dtype is none of ours; no memory.
TAKEN, UNLIKE, HELD, WITHOUT_MEMORY = range(4)

# What the self-test can ask `probe`.
(PROBE_INT, PROBE_LIST_SIZE, PROBE_LIST_ITEM, PROBE_TUPLE_SIZE, PROBE_TUPLE_ITEM, PROBE_SLICE, PROBE_TYPE,
 PROBE_REFERENCES, PROBE_BASE) = range(9)  # fmt: skip

# Bits of an entry's flags (there are flags only in calls with watched slots or targets).
WATCH, TARGET, LEADS, REACHED = 1, 2, 4, 8

OWNED_FROM = 1 << 18
"""Bytes from which a gradient keeps the machine's memory instead of being copied out of it."""

HELD_BY_PYTHON = 1
"""Stands where an adjoint's address would: its dtype is none of ours, so Python keeps it."""

NOWHERE = -1
"""Destination of a constant operand. 0 and above are positions, -2 and below are externals."""
REFUSED = -(1 << 40)
"""Destination that there was no memory to note."""
UNFIT = REFUSED - 1
"""Destination whose adjoint has another form than the operand: Python's business."""

# Words of the world: what every call shares. Bytes of adjoints alive, their peak and their limit; the table of
# ops; scratch memory; addresses of types (W_FLOAT64 ... of NumPy's scalars), of dtypes and of singletons; addresses of
# NumPy's function for new arrays, of functions of the machine, of the shared loops, of BLAS (0 until asked for); the two tables of a
# frame that was closed (the first all zeros) and the number of entries that they have room for; last, addresses of the step for
# each way back (BY_KERNEL ...).
(W_LIVE, W_PEAK, W_LIMIT, W_OPS, W_SCRATCH, W_ARRAY, W_FLOAT64, W_FLOAT32, W_COMPLEX128, W_FLOAT, W_COMPLEX, W_INT,
 W_TUPLE, W_SLICE, W_NONE, W_ELLIPSIS, W_DTYPE_FLOAT64, W_DTYPE_FLOAT32, W_DTYPE_COMPLEX128, W_DTYPE_BOOL,
 W_DTYPE_INTP, W_ORDER_C, W_LEAF, W_NEW_ARRAY, W_OPEN, W_WANT, W_GIVE, W_PRUNE, W_WALK, W_CLOSE, W_LOOP, W_SCALED, W_GATHER, W_SOLE,
 W_DGEMM, W_SGEMM, W_ADJOINTS, W_VISITED, W_ROOM, W_STEPS) = range(40)  # fmt: skip
WORLD = W_STEPS + STEP_COUNT

# Words of a frame. ITEMS: the list's items, read again after each stop. PENDING: how many entries have an adjoint. ROOM: how many
# entries the tables ADJOINTS and VISITED have room for.
# INDEX: a hash table from slot to position, made when a slot is not where its value says. TABLE: likewise from
# an external's node to its number.
(F_WORLD, F_CODE, F_ITEMS, F_START, F_POSITION, F_PENDING, F_ADJOINTS, F_FLAGS, F_VISITED, F_VISITS, F_INDEX,
 F_INDEX_MASK, F_EXTERNALS, F_EXTERNAL_COUNT, F_EXTERNAL_ROOM, F_TABLE, F_TABLE_MASK, F_TARGETED, F_NEED_OPERAND,
 F_NEED_KIND, F_ROOM) = range(21)  # fmt: skip
FRAME = 21

# Words of an external: a leaf, or a slot of another tape. `where` and `operand` say which entry named it first.
E_NODE, E_ADJOINT, E_POSITION, E_OPERAND, E_SIZE, E_KIND, E_WANTED = range(7)
EXTERNAL = 7

# Words of a value record: what `describe` finds out about an object.
V_OBJECT, V_KIND, V_DATA, V_NDIM, V_SHAPE, V_STRIDES, V_SIZE, V_CONTIGUOUS = range(8)
VALUE = 8

# Words of the scratch area: a record per stream and a spare one; destinations of up to three operands; the
# loop's extents, and strides, pointer and counter per stream; axes; constants converted to the program's dtype;
# partial sums; a block per stream.
G, VX, VY, VZ, VOUT, ADJ = range(6)
STREAMS = 6
SPARE = STREAMS
S_VALUES = 0
S_DESTINATIONS = S_VALUES + VALUE * (STREAMS + 1)
S_EXTENTS = S_DESTINATIONS + 3
S_STRIDES = S_EXTENTS + MAX_RANK
S_POINTERS = S_STRIDES + STREAMS * MAX_RANK
S_COUNTERS = S_POINTERS + STREAMS
S_AXES = S_COUNTERS + MAX_RANK
S_CONVERTED = S_AXES + 2 * MAX_RANK
S_SUMS = S_CONVERTED + 2 * STREAMS
S_BLOCKS = S_SUMS + 2 * 64
SCRATCH = S_BLOCKS + STREAMS * 2 * BLOCK

# Words of the desk, which native operators share: types, dtypes and singletons; where a tensor keeps its value and its
# node (offsets); the variable that has the recorder; where slots come from; a word for answers by address; NumPy's functions
# for new arrays and for copies; the processor's flags of floating-point errors (0: unknown here).
(D_TENSOR, D_DATA, D_NODE, D_ARRAY, D_FLOAT, D_INT, D_FLOAT64, D_FLOAT32, D_COMPLEX128, D_DTYPE_FLOAT64, D_DTYPE_FLOAT32,
 D_DTYPE_COMPLEX128, D_NONE, D_NO_GRAD, D_RECORDER, D_NAMESPACE, D_NEXT_SLOT, D_RENEW, D_STOP_ITERATION,
 D_SPARE, D_NEW_ARRAY, D_COPY_ARRAY, D_FLAGS) = range(23)  # fmt: skip
DESK = 23

# Words of an operator's card: the desk; the op's code (an object); the address of Python's function that computes it, or 0
# and the ufunc; the generated function; whether the first argument is the right operand; which arithmetic it is, or 0; whether
# a rule needs the left operand, and the right one; whether Python's function takes a modulus after them; of how many bytes an array
# may be.
(C_DESK, C_CODE, C_COMPUTE, C_UFUNC, C_GENERATED, C_REFLECTED, C_ARITHMETIC, C_KEEPS_X, C_KEEPS_Y,
 C_MODULUS, C_BIG) = range(11)  # fmt: skip
CARD = 11
ADDS, SUBTRACTS, MULTIPLIES, DIVIDES = range(1, 5)
