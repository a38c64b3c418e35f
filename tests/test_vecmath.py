"""Vector math: accuracy and special values against mpmath, the same bits for every number of lanes, code for every target."""

import pytest

from tapegrad import vecmath


@pytest.mark.parametrize("name", sorted(vecmath.FUNCTIONS))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("lanes", [1, 2, 8])
@pytest.mark.parametrize("fused", [True, False])
def test_text_is_a_module(name, dtype, lanes, fused):
    """LLVM reads the text, and it asks for nothing but intrinsics."""
    llvm = pytest.importorskip("llvmlite.binding")
    symbol, text = vecmath.emit(name, dtype, lanes, fused)
    module = llvm.parse_assembly(text)
    module.verify()
    module.get_function(symbol)
    assert all(f.name.startswith("llvm.") for f in module.functions if f.is_declaration)
    assert fused or "llvm.fma" not in text
