"""The shipped machine: believed only where it fits, the same bits as Numba's, and no Numba needed.

Oracles: the machine that Numba compiles here from the same sources, and the sweep. Nothing here is measured in seconds.
"""

from __future__ import annotations

import ast
import ctypes
import os
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import replay
from tapegrad.core import tape
from tapegrad.core.primitive import OPS
from tapegrad.llvm import assembly, cache, linker
from tapegrad.replay import bridge, builder, child, kernels, layout, selftest, shipped, shipping

pytestmark = pytest.mark.skipif(not replay.available(), reason=str(replay.status()["machine"]))

# Every way back that the machine knows, on shapes with strides, broadcasting and more elements than a block.
PROGRAMS = """
import hashlib, sys
import numpy as np
import tapegrad as tg
from tapegrad import replay
from tapegrad.replay import bridge, builder, shipped

rng = np.random.default_rng(7)

def network(x):
    for _ in range(3):
        x = np.tanh(x @ W[: x.shape[-1]]) * 0.5 + np.exp(-x[..., :1] ** 2)
    return x.sum() + np.mean(x * x)

def shapes(x):
    y = np.concatenate([x.T.reshape(-1), np.cumsum(x, axis=0)[1:, ::2].ravel()])
    z = np.stack([y[3:40], y[::-1][3:40] / 3.0])
    z[0, 1] *= 2.0
    return (np.prod(x[:2, :5], axis=1).sum() + np.max(z, axis=1).sum() + np.cumprod(y[:7]).sum()
            + np.take(y, [1, 1, 5]).sum() + np.swapaxes(z, 0, 1)[2].sum() + np.where(y > 0.5, y, 2 * y).sum()
            + (np.broadcast_to(y[:1], (3, 7)) * 1.5).sum() + np.expand_dims(y, 0)[0, 4] ** 3)

def long(x):
    return (x * np.linspace(0.0, 1.0, 70_001)[:, None]).sum() + np.sum(x ** 2) / 7

def mixed(x):
    c = x.astype(np.complex128) * (1 + 2j)
    return np.sum(np.real(c * np.conj(c))) + np.sum(x.astype(np.float32) * np.float32(1.5)) + 2 * x[0, 0] - x[1, 1] / 3

W = rng.normal(size=(20, 20)) / 5

def gradients():
    for f, shape in ((network, (31, 20)), (shapes, (6, 9)), (long, (1, 3)), (mixed, (40, 33))):
        x = tg.tensor(np.random.default_rng(11).uniform(0.1, 1.0, shape), requires_grad=True)
        f(x).backward()
        yield x.grad.numpy()

def report():
    return hashlib.sha256(b"".join(g.tobytes() for g in gradients())).hexdigest()
"""


def python(code: str, folder: Path, **environment: str) -> str:
    """What a new process prints whose cache is in `folder`; Numba's code there is as users have it, not as `conftest.py` asks."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS + textwrap.dedent(code)],
        env=os.environ | {"TAPEGRAD_CACHE_DIR": str(folder), "NUMBA_OPT": "3"} | environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    return result.stdout.strip()


fits = pytest.mark.skipif(
    sys.platform not in shipped._SYSTEMS, reason="no shipped code is tried on this system"
)


# ------------------------------------------------------------------------------------------------------ what is believed


@fits
def test_the_file_belongs_to_these_sources() -> None:
    """Whoever changes a module that the machine is made from makes the file anew: python -m tapegrad.replay.shipping."""
    modules = shipped.modules()
    assert modules, "the file is stale: run python -m tapegrad.replay.shipping"
    assert {m.role for m in modules} == bridge.entry_points().keys()
    assert len(shipped.read(shipped.FILE)["variants"]) == len(shipping.VARIANTS)


def shipped_kernels() -> dict[str, tuple[Any, int, str]]:
    """Op, operand and dtype by the kernel's name."""
    bridge.declare_all()
    every = {
        kernels.name_of(op, operand, dtype): (op, operand, dtype)
        for op in OPS
        for operand in range(len(op.partials))
        for dtype in shipping.KERNELS_OF
    }
    return {name: every[name] for name in shipped._kernels()}


@fits
def test_shipped_kernels_belong_to_these_sources() -> None:
    """Whoever changes a rule that has no vector form makes the file anew, too."""
    found = shipped_kernels()
    assert len(found) > 40
    stale = [name for name, which in found.items() if kernels.as_shipped(*which) is None]
    assert not stale, "the file is stale: run python -m tapegrad.replay.shipping"
    assert not any(kernels.needs_numba(*which) for which in found.values())


@fits
def test_shipped_kernels_are_their_rules() -> None:
    """Of operands in the middle of the domain; the rule by NumPy is the oracle, in double precision."""
    rng = np.random.default_rng(3)
    for name, (op, operand, dtype) in shipped_kernels().items():
        module = kernels.as_shipped(op, operand, dtype)
        assert module is not None
        symbol, code, asks = module.compile()
        part = cache.Part("kernel", symbol, tuple(asks), code)
        address = linker.link(f"trial {name}", [part])["kernel"]
        kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)(address)
        g, *operands = rng.uniform(0.3, 0.9, size=(4, 37)).astype(dtype)
        if op.name == "zeta":
            operands[0] += 1
        values = dict(zip("xyz", operands, strict=True))
        with np.errstate(all="ignore"):
            values["out"] = np.asarray(op.evaluate(operands[: op.arity], None), dtype)
            function = op.partials[operand].function
            wide = [values[k].astype(float) for k in kernels.arguments_of(function)]
            expected = g * function(*wide)
        assert np.all(np.isfinite(expected)), name
        adjoint = np.zeros(37, dtype)
        kernel(37, 0, *(a.ctypes.data for a in (g, *values.values(), adjoint)))
        rtol = 1e-12 if dtype == "float64" else 1e-4
        np.testing.assert_allclose(adjoint, expected, rtol=rtol, err_msg=name)


def forget() -> None:
    """Have the shipped files read anew."""
    shipped._kernels.cache_clear()
    shipped._fitting.cache_clear()
    shipped._compiled.cache_clear()


@fits
@pytest.mark.parametrize("file", ["FILE", "CODE"])
@pytest.mark.parametrize("damage", ["absent", "folder", "empty", "cut", "flipped", "foreign"])
def test_a_damaged_file_is_not_believed(
    damage: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = getattr(shipped, file).read_bytes()
    path = tmp_path / "machine"
    if damage == "folder":
        path.mkdir()
    elif damage != "absent":
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]
        path.write_bytes(
            {"empty": b"", "cut": data[:-9], "flipped": flipped, "foreign": b"\0" * 500}[damage]
        )
    has_code = bool(shipped.code())
    monkeypatch.setattr(shipped, file, path)
    forget()
    try:
        text, code = bool(shipped.modules()), bool(shipped.code())
        if file == "FILE":  # code has its own sum, and asks the text's file for its edition
            assert (text, code) == (False, damage in ("cut", "flipped") and has_code)
        else:
            assert (text, code) == (True, False)
        assert bool(bridge.machine_task().hurried) == (text or code)
    finally:
        forget()


@fits
@pytest.mark.parametrize("where, name", [(layout, "STRIDE"), (tape, "FREED"), (layout, "REFCOUNT")])
def test_what_is_compiled_in_decides(
    where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant that stands elsewhere than in the machine's sources, or another interpreter's layout."""
    task = bridge.machine_task()
    monkeypatch.setattr(where, name, getattr(where, name) + 8)
    forget()
    try:
        assert shipped.modules() == () == shipped.code()
        assert cache.path_of("machine", task.depends_on) != cache.path_of(
            "machine", bridge.machine_task().depends_on
        )
    finally:
        forget()


def test_nothing_else_is_compiled_in() -> None:
    """The machine's modules import one another, Numba, the standard library, and of the rest what the fingerprint has."""
    others = set()
    for name in shipped.SOURCES:
        for node in ast.walk(ast.parse(Path(shipped.__file__).with_name(f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                if node.level == 1:
                    assert node.module in shipped.SOURCES
                else:
                    others |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert others == {"core.tape.STRIDE", "core.tape.FREED"}


# ------------------------------------------------------------------------------------------------------ how it is made


@pytest.mark.long
@pytest.mark.parametrize("variant", list(shipping.VARIANTS)[:1])
def test_making_it_again_gives_the_same_text(variant: str) -> None:
    """Some functions of each; CI compares the whole file, byte by byte."""
    content = shipped.read(shipped.FILE)
    roles = ("probe", "give", f"word {layout.W_LOOP}")
    again = [shipping.made(variant, roles) for _ in range(2)]
    assert again[0] == again[1]
    made = {m["role"]: m for m in again[0]["modules"]}
    kept = {m["role"]: m for m in content["variants"][again[0]["fingerprint"]] if m["role"] in made}
    assert made.keys() == set(roles)
    if content["made_with"] == shipping.made_with():
        assert made == kept
    else:  # other words, the same symbols
        facts = ("symbol", "asks", "loops")
        assert all(made[r][fact] == kept[r][fact] for r in roles for fact in facts)


@pytest.mark.skipif(not shipped.code(), reason="no code is shipped for this platform")
def test_shipped_code_is_that_of_the_text() -> None:
    """A function of each kind, made again from the text; CI compares the whole file, byte by byte."""
    content = shipped.read(shipped.FILE)
    modules = {m.role: m for m in shipped.modules()}
    parts = {part.role: part for part in shipped.code()}
    assert parts.keys() == modules.keys()
    for role in ("probe", f"word {layout.W_LOOP}"):
        module, part = modules[role], parts[role]
        assert (part.symbol, part.asks) == (module.symbol, module.asks)
        if content["made_with"]["llvmlite"] == shipping.made_with()["llvmlite"]:
            (target,) = shipped.PLATFORMS.values()
            machine = assembly.target_of(*target)
            assert part.code == assembly.compiled(
                module.text, vectorise=module.loops, machine=machine
            )


def undefined(code: bytes) -> set[str]:
    """The symbols that object code for Windows (COFF) asks for: they are in no section."""
    start, count = struct.unpack_from("<II", code, 8)
    names = start + 18 * count
    found, k = set(), 0
    while k < count:
        name, value, section, _, kind, more = struct.unpack_from("<8sIhHBB", code, start + 18 * k)
        if name[:4] == bytes(4):  # a long name, among the others
            at = names + int.from_bytes(name[4:], "little")
            name = code[at : code.index(0, at)]
        if (section, value, kind) == (0, 0, 2):
            found.add(name.rstrip(b"\0").decode())
        k += 1 + more
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "triple, cpu, magic",
    [
        ("aarch64-unknown-linux-gnu", "generic", b"\x7fELF"),
        ("arm64-apple-darwin", "apple-m1", b"\xcf\xfa\xed\xfe"),
        ("x86_64-pc-windows-msvc", "x86-64", b"d\x86"),
    ],
)
def test_the_text_is_code_on_other_platforms(triple: str, cpu: str, magic: bytes) -> None:
    """Each function, by LLVM's quickest way, since object code is shipped for one platform only."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, opt=0, reloc="pic", codemodel="small"
    )
    for module in shipped.read(shipped.FILE)["variants"][shipped.fingerprint()]:
        parsed = llvm.parse_assembly(assembly.header(machine) + module["text"])
        made = machine.emit_object(parsed)
        assert made.startswith(magic) and module["symbol"].encode() in made
        if magic == b"d\x86":  # which asks for more than the text does
            assert undefined(made) <= {*module["asks"], "_fltused", *linker.ALWAYS}


def test_nothing_depends_on_the_processor() -> None:
    for modules in shipped.read(shipped.FILE)["variants"].values():
        for module in modules:
            text = module["text"]
            assert not any(word in text for word in ("llvm.x86", "llvm.aarch64", "llvm.fma", " x double>"))  # fmt: skip
            # Only sums may be reordered: no other permission that would change bits.
            assert not any(word in text for word in (" fast ", " contract ", " afn ", " nnan "))
            assert "numba" not in text and all(linker.resolve(name) for name in module["asks"])


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("%2 = load double, ptr %1, align 8, inventedin25", "inventedin25"),
        (
            "%2 = call double @llvm.fmuladd.f64(double %0, double %0, double %0)",
            "words of unknown age: fmuladd",
        ),
        ("call void @numba_do_raise(ptr %1)", "Numba's runtime"),
    ],
)
def test_the_maker_stops_at_what_it_does_not_know(line: str, complaint: str) -> None:
    text = f"define void @f(double %0, ptr %1) {{\n  {line}\n  ret void\n}}\n"
    with pytest.raises(ValueError, match=complaint):
        shipping.sanitised(text, "f", "g")


@pytest.mark.long
def test_code_of_every_level_asks_for_nothing_else() -> None:
    """Code generation may call what the text does not name: such code could not be linked."""
    code = """
    from tapegrad.llvm.cache import Part
    from tapegrad.llvm.linker import link
    for module in shipped.modules():
        symbol, code, asks = module.compile()
        link("trial", [Part(module.role, symbol, tuple(asks), code)])
    print("linked")
    """
    from tests.test_processor import levels

    for level in levels():
        assert python(code, Path("/nowhere"), TAPEGRAD_CPU=level) == "linked"


# --------------------------------------------------------------------------------------------------- what it computes


@fits
@pytest.mark.campaign
def test_the_same_bits_as_numbas_machine(tmp_path: Path) -> None:
    """Code for this processor from the shipped text, and from Numba: equal in every bit."""
    walk = 'tg.set_engine("replay"); print(report(), bool(shipped.modules()), "numba.core" in sys.modules)'
    ours = python(f"list(gradients()); {walk}", tmp_path).split()
    numbas = python(f"shipped.distrust(); list(gradients()); {walk}", cache.folder()).split()
    assert numbas[1] == "False" and ours[1] == "True"
    assert ours[0] == numbas[0]


@pytest.mark.long
@fits
@pytest.mark.parametrize("level", ["native", "generic", "shipped"])
def test_code_in_a_hurry_agrees_with_the_sweep(level: str, tmp_path: Path) -> None:
    """To a few roundings: sums may have several accumulators, or one. No gradient asks for Numba."""
    if level == "shipped" and not shipped.code():
        pytest.skip("no code is shipped for this platform")
    code = f"""
    from tapegrad.llvm.linker import link_texts
    swept = list(gradients())
    if {level!r} != "shipped":
        shipped._compiled = lambda: ()
    bridge._machine_ready(bridge._hurried(lambda: True), "")
    bridge.builder.build = None
    tg.set_engine("replay")
    bridge.request = lambda keys, wait: [bridge.machine.set_kernel(key, 1) for key in keys]
    for g, expected in zip(gradients(), swept, strict=True):
        np.testing.assert_allclose(g, expected, rtol=1e-13, atol=1e-15 * np.abs(expected).max())
    print("numba" in sys.modules)
    """
    assert python(code, tmp_path, TAPEGRAD_CPU=level.replace("shipped", "native")) == "False"


@pytest.mark.long
@fits
def test_code_is_exchanged_in_the_running_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions by name, by word and behind built-in functions: all of them call the other code afterwards, and work."""
    assert replay.load(block=True)
    machine = bridge.machine
    assert machine is not None
    good, hurried = dict(machine._addresses), linker.link_texts("trial", shipped.modules())
    assert not set(good.values()) & set(hurried.values())
    builtins = [machine.whole, machine.held, machine.tail]
    tg.set_engine("replay")
    x = tg.tensor(np.linspace(0.1, 2.0, 9), requires_grad=True)
    try:
        for addresses in (hurried, good, hurried):
            y = (np.exp(x) * x).sum()  # recorded by one tier, walked by the other
            machine.use(addresses)
            assert list(selftest.failures(machine)) == []
            other = good if addresses is hurried else hurried
            words = {a for role, a in addresses.items() if role.startswith("word ")}
            assert words <= set(machine.world.tolist())
            assert not set(other.values()) & set(machine.world.tolist())
            x.grad = None
            y.backward()
            v = x.detach().numpy()
            np.testing.assert_allclose(x.grad.numpy(), np.exp(v) * (1 + v), rtol=1e-14)
            assert [machine.whole, machine.held, machine.tail] == builtins
            assert addresses["whole"] in linker._definitions
    finally:
        machine.use(good)
        tg.set_engine("auto")


@pytest.mark.long
@fits
@pytest.mark.parametrize("where", ["hurried", "stored"])
def test_shipped_code_that_fails_the_self_test_is_given_up(where: str, tmp_path: Path) -> None:
    """Then Numba's is made, as if nothing were shipped; the layout of this Python is not blamed."""
    code = """
    from tapegrad.replay import selftest
    right, built = selftest.failures, []
    selftest.failures = lambda machine: iter(["a planted fault"] if shipped.modules() else [])
    build = builder.build
    def noted(task, go_on=lambda: True):
        built.append(bool(shipped.modules()))
        if built[-1]:
            build(task, go_on)
    builder.build = noted
    assert not replay.load()
    wait_for(builder.idle)
    assert not replay.loaded() and not bridge.trouble and not shipped.modules()
    bridge._building = False
    replay.load()
    wait_for(builder.idle)
    print(replay.available(), built[-1])
    """
    if where == "stored":
        assert python("print(replay.load(block=True))", tmp_path) == "True"
    assert python(WAIT + textwrap.dedent(code), tmp_path) == "True False"


def test_the_machine_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks ask for it again and again while it is made; one that looks for it as it gets ready must not have it made a second time."""
    queued: list[str] = []
    made = object()
    monkeypatch.setattr(builder, "queue", lambda task: queued.append(task.name))
    monkeypatch.setattr(bridge, "machine", None)
    monkeypatch.setattr(bridge, "trouble", "")
    monkeypatch.setattr(bridge, "_building", True)
    monkeypatch.setattr(builder, "load", lambda task: False)
    task = bridge.machine_task()
    monkeypatch.setattr(bridge, "machine_task", lambda: pytest.fail("asked while it is made"))
    assert not bridge.load()

    def ready_meanwhile() -> Any:
        bridge.machine, bridge._building = made, False  # type: ignore[assignment]
        return task

    for building in (True, False):
        monkeypatch.setattr(bridge, "machine", None)
        monkeypatch.setattr(bridge, "_building", building)
        monkeypatch.setattr(bridge, "machine_task", ready_meanwhile)
        bridge.load()
        assert not queued


@fits
def test_the_end_of_a_script_waits_for_a_part_of_the_machine_at_most() -> None:
    """LLVM cannot be interrupted, so what it gets at a time is bounded, and between the parts somebody looks."""
    parts = linker._batches(shipped.modules())
    assert [module for part in parts for module in part] == list(shipped.modules())
    assert all(sum(len(m.text) for m in part) <= linker._AT_ONCE for part in parts)
    asked: list[int] = []
    with pytest.raises(linker.LinkError, match="not wanted"):
        linker.link_texts("trial", shipped.modules(), lambda: asked.append(1) or len(asked) < 2)
    assert len(asked) == 2 < len(parts)


# --------------------------------------------------------------------------------------------------- where it is kept


@pytest.mark.parametrize("file", [shipped.FILE, shipped.CODE], ids=lambda file: file.name)
def test_the_package_has_the_file(file: Path) -> None:
    """What is built from a checkout are the files that version control has: this one is not ignored."""
    root = Path(tg.__file__).parents[1]
    assert file.is_file() and file.parent == Path(replay.__file__).parent
    if not (root / ".git").exists():
        pytest.skip("this is not a checkout")
    run = subprocess.run(["git", "check-ignore", str(file)], cwd=root, capture_output=True)
    assert run.returncode == 1, run.stdout


# --------------------------------------------------------------------------------------------------- the child

# The child is told not to wait until the processor has nothing else to do: beside busy tests it would get a hundredth of one.
WAIT = """
import time
from tapegrad.replay import child
child.NICENESS = 0
def wait_for(ready):
    end = time.monotonic() + 900
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)
"""


def wait_for(ready: Any) -> None:
    end = time.monotonic() + 900
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.long
@fits
@pytest.mark.parametrize("how", ["child", "child fails", "no child"])
def test_better_code_follows(how: str, tmp_path: Path) -> None:
    """By a child process, or by the thread; the code in a hurry is replaced in every place, and the folder has the better one."""
    code = f"""
    from tapegrad.replay import child
    if {how == "child fails"}:
        child._PROGRAM = "raise SystemExit(1)"
    if {how == "no child"}:
        sys.executable = "/usr/bin/some-editor"
    here = []
    make = builder.make
    builder.make = lambda *a: here.append(1) or make(*a)
    first = []
    ready = bridge._machine_ready
    def noted(addresses, reason):
        first.append(dict(addresses))
        return ready(addresses, reason)
    bridge._machine_ready = noted
    assert not replay.load()
    wait_for(builder.idle)
    assert len(first) == 2 and bridge.machine._addresses == first[1]
    assert not set(first[0].values()) & set(bridge.machine.world.tolist())
    print(len(here), "numba" in sys.modules)
    """
    assert python(WAIT + textwrap.dedent(code), tmp_path) == f"{int(how != 'child')} False"
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} - {"child.lock"} == {"machine"}
    assert python("print(replay.load())", tmp_path) == "True"


@pytest.mark.long
@fits
def test_the_child_outlives_the_script(tmp_path: Path) -> None:
    """The script ends as soon as the child has been started: before that, the thread that starts the child would end with it."""
    code = """
    replay.load()
    wait_for(lambda: child._processes)
    print("over")
    """
    assert python(WAIT + textwrap.dedent(code), tmp_path) == "over"
    wait_for(lambda: list(tmp_path.glob("machine-*.bin")))
    assert python("print(replay.load())", tmp_path) == "True"


def order(folder: Path, answers: list[bool]) -> child.Order:
    return child.Order(folder / "trial-0.bin", "trial", answers.append)


@pytest.mark.skipif(sys.platform == "win32", reason="files are locked in another way")
@pytest.mark.parametrize("made", [False, True])
def test_one_child_at_a_time(made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process's child is at work, orders wait; what that child makes is not made again."""
    import fcntl

    started: list[Any] = []

    def start(orders: Any, lock: int) -> Any:
        started.extend(orders)
        raise OSError("a test")

    monkeypatch.setattr(child, "_start", start)
    answers: list[bool] = []
    with open(tmp_path / "child.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert child.build(order(tmp_path, answers)) and child.build(order(tmp_path, answers))
        time.sleep(0.1)
        assert child.at_work() and not started and not answers
        if made:
            (tmp_path / "trial-0.bin").write_bytes(b"made")
    wait_for(lambda: not child.at_work())
    assert answers == [not made] * 2 and len(started) == (0 if made else 2)


@pytest.mark.long
@pytest.mark.skipif(
    sys.platform != "linux", reason="priorities and groups are asked for as Linux has them"
)
def test_the_childs_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of reach of Ctrl-C, in this session, at the lowest priority; it holds the lock until it ends, however it ends."""
    import fcntl

    niceness = python("from tapegrad.replay import child\nprint(child.NICENESS)", tmp_path)
    monkeypatch.setattr(child, "NICENESS", int(niceness))
    before = child._PROGRAM.split("sys.path")[0]
    monkeypatch.setattr(child, "_PROGRAM", before + "__import__('time').sleep(600)")
    answers: list[bool] = []
    wait_for(lambda: not child.at_work())  # what earlier tests have ordered
    assert child.build(order(tmp_path, answers))
    wait_for(lambda: child._processes)
    (process,) = child._processes
    with open(tmp_path / "child.lock") as lock:
        try:
            wait_for(lambda: os.getpriority(os.PRIO_PROCESS, process.pid) == 19)
            assert os.getpgid(process.pid) == process.pid
            assert os.getsid(process.pid) == os.getsid(0)
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            process.kill()
        fcntl.flock(lock, fcntl.LOCK_EX)
    wait_for(lambda: not child.at_work())
    assert answers == [True]


@pytest.mark.parametrize("obstacle", ["no folder", "no process", "another program"])
def test_where_no_child_can_start(
    obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, answers = tmp_path, []
    if obstacle == "no folder":
        (tmp_path / "file").write_text("")
        folder = tmp_path / "file"
    elif obstacle == "no process":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    else:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "blender"))
    begun = child.build(order(folder, answers))
    wait_for(lambda: not child.at_work())
    assert begun == (obstacle == "no process") and answers == [True] * begun


@pytest.mark.long
def test_kernels_for_numba_are_the_childs(tmp_path: Path) -> None:
    """Those of the library's ops; this process gets them from the folder, and never imports Numba."""
    code = """
    from tapegrad.core.primitive import OPS
    from tapegrad.llvm import assembly
    replay.load(block=True)
    codes = {op.name: code for code, op in reversed(list(enumerate(OPS)))}
    keys = [(codes["sinh"], 0, 2), (codes["cosh"], 0, 2), (codes["sin"], 0, 0)]
    for key in keys:
        replay.request([key])
    wait_for(builder.idle)
    assert all(bridge.machine.kernel(key) > 2 for key in keys)
    print("numba" in sys.modules, not assembly.available())
    """
    numba, old = python(WAIT + textwrap.dedent(code), tmp_path).split()
    assert numba == old
    assert len(list(tmp_path.glob("*_complex128-*.bin"))) == 2


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["nothing 0 0", "exp 0 2", "machine"])
def test_a_child_makes_nothing_else(recipe: str, tmp_path: Path) -> None:
    """Where it finds other sources, versions or processors than its parent, it leaves the work to its parent."""
    code = f"""
    from tapegrad.replay import child
    child._wanted = lambda: True
    try:
        child.main([({recipe!r}, "exp_0_complex128-0.bin")])
    except SystemExit as end:
        print(end.code)
    """
    assert python(code, tmp_path) == "1" and not list(tmp_path.iterdir())


def test_long_work_is_taken_up_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a process that is killed: each function that was finished is in the folder, and compiled once."""
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    compiled: list[str] = []

    def compiler(role: str) -> Any:
        return lambda: compiled.append(role) or (role, role.encode() * 9, ["exp"])  # type: ignore[func-returns-value]

    roles = ["walk", "word 3", "whole"]
    steps = lambda: ((role, compiler(role)) for role in roles)  # noqa: E731
    task = builder.Task("trial", "0", steps, lambda a, reason: None)
    assert builder.make(task, lambda: len(compiled) < 2, piecewise=True) is None
    assert compiled == ["walk", "word 3"] and len(list(tmp_path.iterdir())) == 2
    bundle = builder.make(task, piecewise=True)
    assert compiled == roles
    assert bundle is not None and [part.role for part in bundle.parts] == roles
    assert [path.name for path in tmp_path.iterdir()] == [cache.path_of("trial", "0").name]
    for path in tmp_path.iterdir():
        path.unlink()
    builder.make(task, may_store=lambda: False, piecewise=True)
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------- commands


@pytest.mark.long
def test_warm_compiles_everything_now(tmp_path: Path) -> None:
    """Machine, kernels and loops, without Numba; what it says afterwards is what a new process finds."""
    command = """
    from tapegrad.__main__ import main
    status = main([{!r}])
    print("status", status, "numba" in sys.modules)
    """
    assert "shipped" in python(command.format("info"), tmp_path) or not shipped.modules()
    out = python(command.format("warm"), tmp_path)
    assert out.endswith("status 0 False") and "optimised and stored" in out
    names = {path.name.rpartition("-")[0] for path in tmp_path.iterdir()}
    assert {
        "machine",
        "multiply_0_float64",
        "erf_0_float32",
        "loop_exp_f",
        "loop_exp_d",
        "loop_hypot_d",
    } <= names
    assert "not loaded; optimised and stored" in python(command.format("info"), tmp_path)
