"""What people write with an autograd library, beside PyTorch; `idioms.py` holds it."""

import pytest

from bench import idioms, peers


@pytest.mark.parametrize("library", idioms.LIBRARIES)
@pytest.mark.parametrize("name", idioms.IDIOMS)
def test_idiom(benchmark, name, library):
    if not peers.installed(library):
        pytest.skip(f"{library} is not installed")
    run = idioms.checked(library, idioms.IDIOMS[name])
    benchmark.group = name
    benchmark(run)
