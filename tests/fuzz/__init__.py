"""One differential fuzzer for every engine: random programs, each judged by NumPy and by differences.

    python -m tests.fuzz --seed 7 --seconds 120        a campaign; prints what fails, shortened, and what was met
    python -m tests.fuzz --program 7000012             one program again

A *program* is Python source with one function `f` and a list of parameters (program.py). `generator` writes programs of
the array dialect by running each statement as it is written; `native` writes programs that Numba accepts. `engines` runs
a program in every way that the library offers, `judge` holds the results against NumPy's and against differences,
`shrinker` shortens a program that fails, `worker` runs programs in a child process, which may crash or hang.
Invariant: a program is a function of its number alone, so that a number printed by a campaign can be run again.
"""
