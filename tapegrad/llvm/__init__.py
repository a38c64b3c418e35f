"""LLVM: text to machine code in this process, and code on disk.

assembly   text of one module to object code for this processor
named      addresses of C functions, by name
objects    functions that look at objects of Python and NumPy
cache      object code on disk, framed and checked
linker     object code into this process
modules    long modules cut into several
jit        programs of several functions, by LLVM's pipeline
"""
