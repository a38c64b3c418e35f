"""Assembly: IR text to object code for this processor.

One target machine for the process, made when first needed; the only module here that needs llvmlite at work. LLVM's own loop
vectoriser stays off (but for `compiled`, where asked): code is written with the vectors it is to use.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ..core import headroom, processor


@cache
def target() -> Any:
    """LLVM's code generator for this processor, or the one that `TAPEGRAD_CPU` names."""
    llvm = headroom.llvm()

    return target_of(llvm.get_default_triple(), processor.name(), processor.features())


def target_of(triple: str, cpu: str, features: str = "", opt: int = 3) -> Any:
    """LLVM's code generator for processors of some kind."""
    llvm = headroom.llvm()

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small"
    )


def header(machine: Any = None) -> str:
    """What a module says of the processor that it is made for."""
    made_for = machine or target()
    return f'target datalayout = "{made_for.target_data}"\ntarget triple = "{made_for.triple}"\n'


OLDEST = 17
"""LLVM before this does not know pointers without a type unless the whole process is told so."""


@cache
def available() -> bool:
    """Whether this LLVM reads what is written here."""
    llvm = headroom.llvm()

    return llvm.llvm_version_info[0] >= OLDEST


def assemble(text: str) -> tuple[bytes, list[str]]:
    """Object code of a module, and the symbols it asks for.

    The text is as it is to be run, but for the functions that it is put together from: LLVM's usual passes take as long as the
    code generator, and what comes out of them is no faster (measured on kernels and loops of sin, tanh, power and products).

    Raises NotImplementedError with too old an LLVM, RuntimeError where LLVM does not take the text.
    """
    llvm = headroom.llvm()

    if not available():
        raise NotImplementedError(
            f"vector code was asked for, but LLVM {llvm.llvm_version_info[0]} reads pointers in another way. "
            "Install llvmlite 0.45 or newer."
        )
    machine = target()
    module = llvm.parse_assembly(header() + text)
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_instruction_combine_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return machine.emit_object(module), _asks(str(module))


def compiled(text: str, *, vectorise: bool, machine: Any = None) -> bytes:
    """Object code of a module that was optimised without vectors; `vectorise`: LLVM is to do that now. Raises RuntimeError."""
    llvm = headroom.llvm()

    machine = machine or target()
    module = llvm.parse_assembly(header(machine) + text)
    if vectorise:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.slp_vectorization = False  # as in Numba, which met wrong code from it
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)


# Rounding is an instruction wherever there are vectors worth having; elsewhere it is libm's.
_ROUNDING = ("floor", "ceil", "trunc", "rint")


def _asks(text: str) -> list[str]:
    names = set(re.findall(r'^declare [^@]*@"?([^"(\s]+)', text, re.MULTILINE))
    asked = {name for name in names if not name.startswith("llvm.")}
    for name in _ROUNDING:
        if f"@llvm.{name}." in text:
            asked |= {name, f"{name}f"}
    return sorted(asked)


def lanes(dtype: str) -> int:
    """How many elements loops take at a time: two vectors' worth, so that one computes while the other waits."""
    return 2 * processor.vector_bytes() // (8 if dtype == "float64" else 4)
