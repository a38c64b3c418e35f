"""The program form: one typed program of loops over regions, for whole-array statements and scalar loops alike.

    front end --> program of statements --> grouping --> derivative --> lowering --> passes --> writer --> machine code
                  (mathematics)                                        (loops: schedule)

A front end (`native.forming` for Numba source) says what a function computes as statements over regions of buffers. The derivative maps
statements to statements. Lowering turns statements into loops of single stores; passes rewrite the loops; one writer prints them as
LLVM IR, which `compiler.jit` optimises, links and keeps on disk. Everything that moves a memory access asks `order`, and only `order`,
whether it may.

In the order of reading:

    affine       whole numbers that are affine in loop variables and sizes
    form         buffers, accesses, statements, stores, loops; `text` prints them
    expressions  interned formulas
    order        the one question: may A touch an element that B touches later?
    arrays       shapes and index arithmetic; builds programs for front ends
    grouping     scalar code as statements of several stores
    scratch      arrays that loops write anew
    calls        routines of LAPACK, with their derivatives; `lapack` writes them
    partials     the partials declared in `tapegrad.ops`, as expressions
    cotangents   the chain rule within one statement
    residuals    what the reverse sweep needs, and where it finds it
    derivative   reverse mode
    tangents     forward mode; of a gradient, second order
    lowering     statements to loops
    passes       rewrites of loops
    writer       LLVM IR
    running      the call from Python
    compiling    all of it in a row

What was decided, and why
-------------------------

*A statement computes all its values first, then stores them in order.* Then `A[1:] = A[:-1]` is one statement whose derivative is one
statement, and updates in place, residuals and grouped scalar code need no cases of their own. Whether it needs a temporary is decided
behind the derivative, by lowering.

*The reverse sweep puts back what was overwritten.* A store keeps the old element only if a derivative reads it at an earlier point. The
alternative, a copy at each reader, keeps one value several times. Buffers of one iteration are computed again where that is
elementwise and needs no more residuals (operations for bytes), else widened by the loops around: no store is executed for keeping. Where
an iteration overwrites what they were computed from, that happens behind the point at which the reverse sweep has put it back: a step of
Burgers' equation keeps the old values, and no differences of them.

*What the derivative of a stencil scatters is gathered.* It adds to shifted places of one buffer, so that no loop over all of it is
parallel. A loop for each place is; two of these are one loop over what they share, and what is left at the ends is peeled, where the
extents are long (`passes.fusion.aligned`). For stencils of one and two axes that took 0.6 to 0.8 of the time; peeled planes of three axes
cost more than they save. Formulas that all places share go through a row of memory (`passes.staging`), else each place computes them.

*Sizes are symbols; what cannot be proved of them is assumed, and checked at each call before anything is written.* Indices below zero
by chance, arrays broadcast by chance and lengths that differ go to the engine that was there before.

*Sums are taken in any order in registers and in products of matrices only.* Other memory is never reassociated, products and sums are
never contracted.

*A product of matrices is a nest of loops with a mark* (`passes.products`), whatever text it came from: `A @ B`, three loops in any order, a
number that each pass adds up, the sum over all steps by which a matrix enters each of them. So derivative, residuals and passes know
nothing of calls. The mark is set where sizes are proved to be large, before any other pass; there is a program for these sizes and
one of loops for others, as with equal lengths. To cut a sum out of its loops, numbers and rows of one iteration are widened by the
loops around, but only if a product comes of it. A sum bounded by the variable of another loop is one product for each block of iterations,
and loops beside the slope: a triangle filled with zeros would multiply what the program never reads. In the guarded form of a program,
for infinite partials, there are loops alone.

*A call of LAPACK is a loop of one iteration with a mark* (`calls`), whose body touches what the routine touches: it adds up what is read
and writes the sum to every element of the result. So order, residuals, scratch memory and passes have no case for calls, and a loop with
a mark is closed to all of them. The derivative of a call is its routine's rule, which is made of statements and calls, in both modes; so
second derivatives need nothing more. LU factors are one buffer, and their cotangent and tangent are those of the matrix: factors that
the forward sweep made serve the reverse one, and a matrix that is overwritten need not be kept. A program whose call finds no solution
is left; then the engine that was there before is asked, which raises. A filter of five steps with 4x4 matrices, gradient: 7.3 us and
0.1 s for the first call, where the generated adjoint took 50 us and 6 s.

*Memory that each iteration of a loop writes anew is memory of that loop* (`scratch`), though it was made outside, or is used in several
loops: what stands in front is dropped, and the reverse sweep finds a buffer of one iteration where it would else keep each element that
is overwritten (for one row of scores in `bench`'s attention that was one number for each of 800,000 operations).

*A branch is no node.* One side stands where order proves the condition, or sizes are assumed for which the other one would raise. Where the
variable of a loop decides, the loop is cut in pieces within which nothing is left to decide, so that indices which a condition guards are
proved like any other. Else the condition is a truth value in memory and each store under it asks it: `x = where(c, value, x)`,
`x += where(c, value, 0)`. Then derivative, residuals (a byte for a condition) and passes have no case of their own, and loops stay
parallel. Both sides are computed: where a branch in a loop has arrays, loops, elementary functions or many operations, it is a loop of one
iteration or none, until a truth value. A choice between two numbers of which one takes elementary functions stays a choice; another engine,
which jumps, is faster there (`native.formed.is_worthwhile`).

*Only the innermost loop is cut at borders.* Where the variable of a loop around it decides which row an index names (`(i - 1) % n`),
the row is a place: a whole number that is written down in front of the inner loop, once for each row (`native.placing`). A stencil of
two axes on a torus has three bodies for nine, one of three axes three for twenty-seven; the machine code of reactions on a torus was
made in 0.8 s, before in 1.7 s, and an innermost loop is parallel as before. What the bodies write of an array is whole together
(`residuals.covering`), so that it is memory of one iteration.

*What raises is asked at the end.* A sum counts how often the function would have raised, and a call that must be given 0 stands behind all
else (`calls`, "demand"): loops stay parallel, and nothing but the answer of a call that raises is lost. In loops that might not end it is
asked at once.

*`while`, and loops that are left early, have the bound "until the condition"* (`form.Until`). The truth value is computed before the loop
and at the end of its body. The forward sweep writes how often the loop ran. That number is a name (`affine.Counted`), not negative, of
which nothing else is known, and it is the upper bound of the loop's range. So all proofs about bodies hold as they are, and the reverse
sweep has an ordinary loop over the same range. Residuals of iterations lie on a stack, at place `start + i`, where `start` is how often the
loop had run before, in other iterations of the loops around. A stack's extent is a size that the call itself has: where it does not
suffice, the program ends, the size doubles, and the call is made again. A copy that grows would cost a pointer for each access. An index
that depends on such a number and is not proved in bounds is compared as the program runs; the call then goes to the other engine. Whole
numbers that grow by the same in each iteration are affine in it. Others are held in memory, as floats, if they are only counted up or
down and are no indices. Passes move nothing into or out of such a loop.

*An index that is read from an array is a name.* `x[at[i]]` has the affine index `at[i]`, one name (`affine.Element`) bounded by two others,
the least and the greatest number of `at`, which a call finds beforehand where an assumption has them. So index arithmetic, bounds of
loops (`for k in range(starts[i], starts[i + 1])`) and all proofs about affine indices hold as they are; two such names are equal where
their indices are, else order says "perhaps": sums into `y[at[i]]` stay in their order, `=` into it saves each element that it overwrites.
Nothing writes to an array of whole numbers. What hoists such a name out of a loop proves first that the name exists without the loop
(`Order.exists`). Outside are arrays as indices (`x[at]`), residuals of a loop whose length is read from an array, numbers of other
dtypes than int64 and int32. A call with an index below zero goes to the other engine.

*Names that exchange arrays in a loop (`u, w = w, u`) are no copies.* After so many iterations each name has its own array again: the loop
takes as many at once (`native.forming._together`), so that each access has one buffer. What remains of their number stands behind the
loop. Copying the elements took 1.5 to 2 times as long on the stencils of `bench/`.

*What is divided is a size of its own.* How often a loop of step 2 runs, or one that takes three iterations at once, is no affine number
of its bounds. So the length or argument in them becomes `period * size + residue`: a call finds both, there is a program for each
residue, and all is affine again.

*The tangent of a statement is a statement in front of it*, over the same axes: it reads what the statement reads, and tangents. So no
value is kept for it and no loop is turned round; where both are one loop, the passes find that. A gradient is a program of statements:
second and third derivatives are forward mode of it, residuals among its buffers. `strong(g, p)`, the product of a cotangent and a
partial, has the tangent `strong(dg, p) + chosen(dp, g)`, as the op has that the tape records: what is 0 for a factor of 0 is so in each
term. What no tangent reads is no part of the program (`grouping.without_dead`): with a product by a Hessian the gradient itself. Reverse
mode of the gradient is not needed, since Hessians are symmetric: `native.entry` asks for forward mode in either case. Four directions go
through one program, so that values and partials are computed once for them.

Not yet in the form, each tried against it:

- calls of decompositions of complex matrices, FFT, SciPy's functions, rules of users: each is a routine and a rule more in `calls`, of one
  result.
- residuals of a loop whose length is read from an array (a product kept for each entry of a sparse row): where the loop's bounds are
  neighbours in one array, the residual has one element for each number between the least and the greatest of it, not one for each row
  and each of these, once a call has seen that the numbers do not fall.
- threads: a loop whose iterations are proved apart but for sums, cut into chunks of a number that does not depend on the threads, so no
  bit of a sum does; private copies of what is summed, added in the order of the chunks. A pass behind `fuse`.
- checkpoints: a loop with snapshots is a loop over segments whose body is a loop; what is live into a segment is saved, the segment's
  residuals are local to it and computed again. The rule for local buffers is the same; the segment is the iteration.
- tiles and peeled loops need bounds with minimum and maximum: a tuple of affine bounds, of which the largest (smallest) counts. Order
  takes several inequalities as easily as one.
"""
