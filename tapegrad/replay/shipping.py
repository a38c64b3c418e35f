"""Shipping: the machine written as LLVM IR that any process can compile without Numba (shipped.py reads it).

    python -m tapegrad.replay.shipping            write machine.ir, machine.code and kernels.ir; needs Numba, and 20 s a variant
    python -m tapegrad.replay.shipping --check    exit status 1 if the files there are not what would be written, 2 if these versions
                                                  of Python, Numba and llvmlite cannot tell

Numba types and lowers each function of the machine as it always does, but for a processor without features and with its own optimiser
switched off. Then helpers become internal, so that they are inlined and dropped. LLVM optimises without vectors, since those depend
on the reader's processor. Then the text is reduced to words that LLVM 20 to 22 share. Object code is made from that text, for any
processor of the platforms that `shipped.PLATFORMS` lists.

Invariant: the same sources, Python, Numba and llvmlite give the same bytes. An unknown word of a newer LLVM stops this program.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ..core.primitive import OPS
from ..llvm import assembly
from ..llvm.cache import Part
from . import layout, shipped

VARIANTS: dict[str, dict[str, Any]] = {
    "3.11": {"REFCOUNT_BITS": 64, "INT_TAGGED": False},
    "3.12": {"REFCOUNT_BITS": 32, "INT_TAGGED": True},
}
"""What layout.py says in the Python versions from this one on; the machine depends on nothing else of Python's version."""

# For Numba: a processor without features, no vectors. Numba reads this as it is imported, hence a process of its own.
_ENVIRONMENT = {
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "NUMBA_LOOP_VECTORIZE": "0",
    "NUMBA_SLP_VECTORIZE": "0",
    "NUMBA_OPT": "3",
    "PYTHONHASHSEED": "0",
}

KERNELS_OF = ("float64", "float32")
"""The dtypes of shipped kernels. Few of complex numbers have no vector form, and those are long."""

_TARGET = {"triple": "x86_64-unknown-linux-gnu", "cpu": "x86-64"}
"""The processor that LLVM optimises for; no instruction of its own gets into the text."""


# -------------------------------------------------------------------------------------------------- one variant


def made_here(roles: Sequence[str] = ()) -> dict[str, Any]:
    """The machine in this process's variant: its fingerprint and its modules, all or those of some roles."""
    from .bridge import entry_points
    from .layout import W_GATHER, W_LOOP, W_SCALED

    _leave_to_the_end()
    loops = [f"word {word}" for word in (W_LOOP, W_SCALED, W_GATHER)]
    modules = []
    for role, entry in entry_points().items():
        if roles and role not in roles:
            continue
        module = _module(role, entry)
        module["loops"] = role in loops or " reassoc " in module["text"]
        modules.append(module)
    return {"fingerprint": shipped.fingerprint(), "modules": modules}


def kernels_here() -> dict[str, Any]:
    """The kernels of the library's own ops that have no vector form, by name, with the fingerprints of what they are made from."""
    from numba.core.errors import NumbaError

    from . import bridge, kernels

    _leave_to_the_end()
    bridge.declare_all()
    found: dict[str, Any] = {}
    for op in OPS:
        ours = op.elementwise and op.function.__module__.startswith("tapegrad")
        for operand, partial in enumerate(op.partials if ours else ()):
            if partial.function is None or kernels.obstacle(partial.function):
                continue
            for dtype in KERNELS_OF:
                if kernels.has_vector_form(op, operand, dtype):
                    continue
                name = kernels.name_of(op, operand, dtype)
                try:
                    entry = kernels.lowered(op, operand, dtype)
                    module = _module(name, entry)
                except NumbaError:  # complex numbers in a rule of real ones
                    continue
                made_from = kernels.source_fingerprint(op, operand, dtype)
                found[name] = {"fingerprint": made_from, "module": module}
    return found


def _leave_to_the_end() -> None:
    """Have Numba optimise nothing: it would do so to every helper, and again in each of its callers."""
    from numba.core.codegen import JITCodeLibrary

    def later(library: Any) -> None: ...

    libraries: Any = JITCodeLibrary
    libraries._optimize_final_module = later


def _module(role: str, entry: Any) -> dict[str, Any]:
    """A function as it is shipped, in the fields of `linker.Module`."""
    from .access import asked_for

    symbol, library = entry.lowered()
    name = f"tapegrad_{role.replace(' ', '_')}"
    text = sanitised(optimised(str(library._final_module), symbol), symbol, name)
    return {"role": role, "symbol": name, "asks": asked_for(text), "loops": False, "text": text}


def optimised(text: str, symbol: str) -> str:
    """The module with everything but `symbol` internal, optimised at scalar level."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    # The machine's functions never fail. Once they are internal, LLVM sees that, and with the error handling in their C wrappers goes
    # everything that asks for Numba's runtime. Numba forbids to inline them into the wrappers, which would leave two functions;
    # an attribute group must not become empty, hence another word.
    module = llvm.parse_assembly(re.sub(r"\bnoinline\b", "inlinehint", text))
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != symbol:
            value.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    target = llvm.Target.from_triple(_TARGET["triple"]).create_target_machine(cpu=_TARGET["cpu"])
    builder = llvm.create_pass_builder(target, options)
    passes = builder.getModulePassManager()
    passes.add_strip_symbols_pass()  # Numba's mangled names are long, and say nothing here
    passes.run(module, builder)
    return str(module)


# --------------------------------------------------------------------------------------------------- the words

# Everything that a newer LLVM writes and an older one cannot read, and everything that is of no use in an optimised module. Each of
# these words only permits LLVM something or promises it something, so that the text means the same without them.
_DROPPED = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^;.*\n|^source_filename.*\n| *; preds = .*",  # comments
        r"^target (?:datalayout|triple).*\n",  # the reader writes those of its process
        r"^attributes #\d+ = .*\n| #\d+(?=[ \n,])",
        r"^!.*\n|, ![\w.]+ !\d+",  # metadata: branch weights, scopes of arguments
        r"^.*@llvm\.lifetime\..*\n",
        r" (?:captures\(none\)|nocapture)",
        r" initializes\((?:\([^)]*\)(?:, )?)+\)",
        r"(?<=[ (])range\([^)]*\) ",
        r" (?:samesign|noundef|dead_on_unwind|writable|dead_on_return)\b",
        r" (?:local_)?unnamed_addr",
    )
)

_KNOWN = frozenset(
    """
    abs add align alloca and ashr br c call common constant declare default define dereferenceable disjoint double eq exact external
    extractvalue fadd false fast fastcc fcmp fdiv float fmul fneg fpext fptosi fptrunc freeze fsub getelementptr global i1 i16 i32 i64 i8
    icmp immarg inbounds insertvalue internal inttoptr label load lshr mul ne nneg noalias nonnull nsw null nuw oeq oge ogt ole olt
    one or ord phi poison private ptr ptrtoint readnone readonly reassoc ret sdiv select sext sge sgt shl sitofp sle slt srem store
    sub switch tail to true trunc type udiv ueq uge ugt uitofp ule ult undef une uno unreachable unwind urem void writeonly x xor
    zeroinitializer zext
    """.split()
)
"""The words that LLVM has known since version 19."""

_INTRINSICS = frozenset(
    "abs cos exp fabs floor log memcpy memmove memset pow rint scmp sin smax smin ucmp umax umin".split()
)
"""No `fmuladd`: LLVM may round it once or twice, as the processor likes, and gradients would depend on that."""


def sanitised(text: str, symbol: str, name: str) -> str:
    """The module in words that LLVM 20 to 22 share, its function called `name`; ValueError where a word is unknown."""
    for pattern in _DROPPED:
        text = pattern.sub("", text)
    text = text.replace(f"@{symbol}(", f"@{name}(")
    text = re.sub(r"\n\n+", "\n", text).strip() + "\n"
    names = r'[%@]?"[^"]*"|[%@][\w.$-]+|^[\w.$-]+:|\b\d[\w.+-]*'
    words = set(re.findall(r"[A-Za-z_]\w*", re.sub(names, " ", text, flags=re.MULTILINE)))
    intrinsics = set(re.findall(r"@llvm\.(\w+)", text))
    unknown = (words - _KNOWN) | (intrinsics - _INTRINSICS)
    if unknown:
        raise ValueError(
            f"the machine's {name} was to be written, but it has words of unknown age: {', '.join(sorted(unknown))}. Find out since "
            "which LLVM each exists and what it means; then list it as known, or drop it."
        )
    if "@numba_" in text:
        raise ValueError(
            f"the machine's {name} was to be written, but it calls Numba's runtime: it can fail, which functions of the machine must not."
        )
    return text


# --------------------------------------------------------------------------------------------------- the file


def made(variant: str, roles: Sequence[str] = ()) -> dict[str, Any]:
    """The machine in a variant, all of it or some roles, made by a process of its own."""
    return _elsewhere("--variant", variant, *(f"--role={role}" for role in roles))


def _elsewhere(*asked: str) -> dict[str, Any]:
    """What a process of its own makes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "variant.json"
        package = Path(__file__).parents[2]
        subprocess.run(
            [
                sys.executable,
                "-m",
                __spec__.name,
                *(*asked, "--to", str(path)),
            ],
            check=True,
            cwd=package,
            env=os.environ | _ENVIRONMENT,
        )
        return json.loads(path.read_text())


def made_with() -> dict[str, str]:
    """The versions on which the bytes depend: other ones write the same machine in other words."""
    numba, llvmlite = metadata.version("numba"), metadata.version("llvmlite")
    return {
        "numba": numba,
        "llvmlite": llvmlite,
        "python": "{}.{}".format(*sys.version_info),
    }


def content() -> tuple[bytes, bytes, bytes]:
    """What `machine.ir`, `machine.code` and `kernels.ir` have to be."""
    variants = {v["fingerprint"]: v["modules"] for v in map(made, VARIANTS)}
    text = shipped.packed({"made_with": made_with(), "variants": variants})
    kernels = shipped.packed({"made_with": made_with(), "kernels": _elsewhere("--kernels")})
    return text, code(text, variants), kernels


def code(text: bytes, variants: dict[str, Any]) -> bytes:
    """What `machine.code` has to be beside a file of texts: the best code that any processor of a platform runs."""
    parts = []
    for made_from, modules in sorted(variants.items()):
        for system, (triple, cpu) in shipped.PLATFORMS.items():
            machine = assembly.target_of(triple, cpu)
            for m in modules:
                made = assembly.compiled(m["text"], vectorise=m["loops"], machine=machine)
                parts.append(
                    (made_from, system, Part(m["role"], m["symbol"], tuple(m["asks"]), made))
                )
    return shipped.packed_code(text, parts)


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's arguments); the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}")
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    parser.add_argument("--to", type=Path, default=shipped.FILE, help="write the text here instead")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--kernels", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--role", action="append", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.variant:
        for name, value in VARIANTS[options.variant].items():
            setattr(layout, name, value)  # before the machine's modules copy it
        options.to.write_text(json.dumps(made_here(options.role)))
        return 0
    if options.kernels:
        options.to.write_text(json.dumps(kernels_here()))
        return 0
    if options.check and shipped.read(options.to)["made_with"] != made_with():
        print(f"{options.to} was made with other versions, so its bytes cannot be compared here")
        return 2
    stale = False
    paths = options.to, options.to.with_suffix(".code"), options.to.with_name("kernels.ir")
    for path, data in zip(paths, content(), strict=True):
        if options.check:
            same = path.is_file() and path.read_bytes() == data
            print(f"{path} is {'up to date' if same else 'stale'}")
            stale |= not same
        else:
            path.write_bytes(data)
            print(f"{path}: {len(data)} bytes")
    return stale


if __name__ == "__main__":
    sys.exit(main())
