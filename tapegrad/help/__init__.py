"""What tells users and editors about the library; nothing here is needed to compute.

names       every public name and where it lives
stubs       `.pyi` files, made from declarations
documents   generated parts of pages
remedies    short names of messages, and what to do
vocabulary  NumPy's functions: which have a rule, a constant result, or a reason why not
profiling   `tg.profile`
"""
