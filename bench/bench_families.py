"""Value and gradient of one computation a family of ops, beside other libraries; `families.py` holds them."""

import pytest

from bench import families, peers


@pytest.mark.parametrize("library", families.LIBRARIES)
@pytest.mark.parametrize("n", families.SIZES)
@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda f: f.name)
def test_gradient(benchmark, family, n, library):
    if not peers.installed(library):
        pytest.skip(f"{library} is not installed")
    try:
        _, run = families.checked(library, family, n)
    except AttributeError:
        pytest.skip(f"{library} has no such function")
    benchmark.group = f"{family.name}-{n}"
    benchmark(run)
