"""The team: threads that share the chunks of a program's large loops.

The thread that calls a program offers a job: a function of (frame, chunk, who) and a number of chunks. It rings for workers, and all of
them take chunks, one at a time, until none is left. There is one job at a time: a caller that finds the team busy does its
chunks alone, so any number of threads may run programs at once. Workers sleep on a lock each, and are hired when first
needed. All of it is machine code on Python's own locks and threads (`PyThread_*`), which need no interpreter lock.

The division into chunks depends on the program alone, so results do not depend on how many threads there are (schedule.py).

A worker *joins* a job by adding one to `@word` while its highest bit says that the job is open, and leaves by subtracting one. The
caller closes the job when no chunk is left, and waits only for those who have joined: one that wakes up late finds the door closed.

Invariant: a job's frame is alive until everyone who joined it has left.
"""

from __future__ import annotations

import ctypes
import operator
import os
from typing import Any

from ..core import locks

MOST = 64
"""Threads that a team has at most."""

_OPEN = 1 << 32

_lock = locks.lock()
_state: dict[str, Any] = {}

_TEXT = f"""
@hired = internal global i64 0
@busy = internal global i64 0
@word = internal global i64 0
@next = internal global i64 0
@chunks = internal global i64 0
@limit = internal global i64 0
@call = internal global ptr null
@frame = internal global ptr null
@left = internal global ptr null
@doors = internal global [{MOST} x ptr] zeroinitializer
@rung = internal global [{MOST} x i64] zeroinitializer
declare ptr @PyThread_allocate_lock()
declare i32 @PyThread_acquire_lock(ptr, i32)
declare void @PyThread_release_lock(ptr)
declare i64 @PyThread_start_new_thread(ptr, ptr)

; A child of fork has none of its parent's threads, and whatever they held.
define void @tg_forget() {{
  store i64 0, ptr @hired
  store i64 0, ptr @busy
  store i64 0, ptr @word
  store ptr null, ptr @left
  ret void
}}

define internal ptr @closed_door() {{
  %lock = call ptr @PyThread_allocate_lock()
  %none = icmp eq ptr %lock, null
  br i1 %none, label %end, label %close
close:
  call i32 @PyThread_acquire_lock(ptr %lock, i32 1)
  br label %end
end:
  ret ptr %lock
}}

define internal void @work(i64 %who) {{
  %call = load ptr, ptr @call
  %frame = load ptr, ptr @frame
  %chunks = load i64, ptr @chunks
  br label %take
take:
  %chunk = atomicrmw add ptr @next, i64 1 seq_cst
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %do, label %end
do:
  call void %call(ptr %frame, i64 %chunk, i64 %who)
  br label %take
end:
  ret void
}}

define internal void @worker(ptr %number) {{
  %j = ptrtoint ptr %number to i64
  %who = add i64 %j, 1
  %doorp = getelementptr ptr, ptr @doors, i64 %j
  %rungp = getelementptr i64, ptr @rung, i64 %j
  %door = load ptr, ptr %doorp
  br label %sleep
sleep:
  call i32 @PyThread_acquire_lock(ptr %door, i32 1)
  store atomic i64 0, ptr %rungp seq_cst, align 8
  br label %look
look:
  %word = load atomic i64, ptr @word seq_cst, align 8
  %bit = and i64 %word, {_OPEN}
  %open = icmp ne i64 %bit, 0
  br i1 %open, label %join, label %sleep
join:
  %more = add i64 %word, 1
  %pair = cmpxchg ptr @word, i64 %word, i64 %more seq_cst seq_cst
  %joined = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %joined, label %inside, label %look
inside:
  ; Someone rung for an earlier, larger team may come to a smaller one, which has no memory for more.
  %limit = load i64, ptr @limit
  %mine = icmp slt i64 %who, %limit
  br i1 %mine, label %help, label %leave
help:
  call void @work(i64 %who)
  br label %leave
leave:
  %before = atomicrmw sub ptr @word, i64 1 seq_cst
  %last = icmp eq i64 %before, 1
  br i1 %last, label %tell, label %sleep
tell:
  %left = load ptr, ptr @left
  call void @PyThread_release_lock(ptr %left)
  br label %sleep
}}

; One more worker, if there can be.
define internal i1 @hire(i64 %j) {{
  %known = load ptr, ptr @left
  %first = icmp eq ptr %known, null
  br i1 %first, label %begin, label %door
begin:
  %left = call ptr @closed_door()
  store ptr %left, ptr @left
  %without = icmp eq ptr %left, null
  br i1 %without, label %no, label %door
door:
  %new = call ptr @closed_door()
  %none = icmp eq ptr %new, null
  br i1 %none, label %no, label %start
start:
  %doorp = getelementptr ptr, ptr @doors, i64 %j
  store ptr %new, ptr %doorp
  %rungp = getelementptr i64, ptr @rung, i64 %j
  store i64 0, ptr %rungp
  %number = inttoptr i64 %j to ptr
  %id = call i64 @PyThread_start_new_thread(ptr @worker, ptr %number)
  %failed = icmp eq i64 %id, -1
  br i1 %failed, label %no, label %yes
yes:
  %more = add i64 %j, 1
  store i64 %more, ptr @hired
  ret i1 true
no:
  ret i1 false
}}

define internal void @ring(i64 %j) {{
  %rungp = getelementptr i64, ptr @rung, i64 %j
  %before = atomicrmw xchg ptr %rungp, i64 1 seq_cst
  %asleep = icmp eq i64 %before, 0
  br i1 %asleep, label %wake, label %end
wake:
  %doorp = getelementptr ptr, ptr @doors, i64 %j
  %door = load ptr, ptr %doorp
  call void @PyThread_release_lock(ptr %door)
  br label %end
end:
  ret void
}}

; Whether it has had the chunks done; it has not where there is nobody to help.
define i1 @tg_crew(ptr %call, ptr %frame, i64 %chunks, i64 %team) {{
  %others = sub i64 %team, 1
  %most = sub i64 %chunks, 1
  %fewer = icmp slt i64 %most, %others
  %wanted = select i1 %fewer, i64 %most, i64 %others
  %some = icmp sgt i64 %wanted, 0
  br i1 %some, label %claim, label %alone
claim:
  %pair = cmpxchg ptr @busy, i64 0, i64 1 seq_cst seq_cst
  %free = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %free, label %count, label %alone
count:
  %hired = load i64, ptr @hired
  %enough = icmp sge i64 %hired, %wanted
  br i1 %enough, label %offer, label %one
one:
  %got = call i1 @hire(i64 %hired)
  br i1 %got, label %count, label %offer
offer:
  %able = icmp slt i64 %hired, %wanted
  %rings = select i1 %able, i64 %hired, i64 %wanted
  store ptr %call, ptr @call
  store ptr %frame, ptr @frame
  store i64 %chunks, ptr @chunks
  store i64 %team, ptr @limit
  store atomic i64 0, ptr @next seq_cst, align 8
  store atomic i64 {_OPEN}, ptr @word seq_cst, align 8
  br label %rounds
rounds:
  %j = phi i64 [ 0, %offer ], [ %j1, %bell ]
  %again = icmp slt i64 %j, %rings
  br i1 %again, label %bell, label %own
bell:
  call void @ring(i64 %j)
  %j1 = add i64 %j, 1
  br label %rounds
own:
  call void @work(i64 0)
  %word = atomicrmw and ptr @word, i64 {_OPEN - 1} seq_cst
  %joined = and i64 %word, {_OPEN - 1}
  %nobody = icmp eq i64 %joined, 0
  br i1 %nobody, label %over, label %wait
wait:
  %left = load ptr, ptr @left
  call i32 @PyThread_acquire_lock(ptr %left, i32 1)
  br label %over
over:
  store atomic i64 0, ptr @busy seq_cst, align 8
  ret i1 true
alone:
  ret i1 false
}}
"""


def ready() -> None:
    """Have the crew hired by programs that share loops, if more than one thread is wanted."""
    with _lock:
        _state["shares"] = True
        _told()


def _told() -> None:
    """Tell programs how many threads there are; the crew is made when it is first wanted."""
    number = _number()
    if number > 1 and "crew" not in _state:
        from ..llvm import jit
        from . import support

        found = support.kept_forever(_TEXT, jit.QUICK, ("tg_crew", "tg_forget"))
        forget = ctypes.CFUNCTYPE(None)(found["tg_forget"])
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=forget)
        _state["crew"] = found["tg_crew"]
    if _state.get("told") != number:
        from . import support

        support.set_team(number, _state.get("crew", 0))
        _state["told"] = number


def _number() -> int:
    """Threads that work together: TAPEGRAD_NUM_THREADS, else the processors of this process."""
    if "number" not in _state:
        asked = os.environ.get("TAPEGRAD_NUM_THREADS")
        if asked:
            try:
                _state["number"] = _checked(int(asked))
            except ValueError:
                raise ValueError(
                    f"the environment variable TAPEGRAD_NUM_THREADS is {asked!r}, which is no number of threads: set it to a whole "
                    "number from 1 on, or unset it for as many as there are processors."
                ) from None
        elif hasattr(os, "sched_getaffinity"):
            _state["number"] = min(len(os.sched_getaffinity(0)), MOST)
        else:
            _state["number"] = min(os.cpu_count() or 1, MOST)
    return _state["number"]


def _checked(n: int) -> int:
    if n < 1:
        raise ValueError(
            f"{n} threads were asked for, but a program runs in one at least: pass a whole number from 1 on."
        )
    return min(n, MOST)


def get_num_threads() -> int:
    """The number of threads that share the large loops of compiled programs.

    At first `TAPEGRAD_NUM_THREADS`, or as many as there are processors for this process. Raises ValueError where that variable
    is no such number.

    >>> import tapegrad as tg
    >>> tg.get_num_threads() >= 1
    True
    """
    with _lock:
        return _number()


def set_num_threads(n: int) -> None:
    """Let `n` threads share the large loops of compiled programs, at most 64; results do not depend on it.

    One means that every call computes in the thread that made it. It holds for the whole process, from the next call on. NumPy's
    own routines (BLAS) have threads of their own. Raises ValueError below 1, TypeError for what is no whole number.

    >>> import tapegrad as tg
    >>> before = tg.get_num_threads()
    >>> tg.set_num_threads(1)
    >>> tg.get_num_threads()
    1
    >>> tg.set_num_threads(before)
    """
    number = _checked(operator.index(n))
    with _lock:
        _state["number"] = number
        if "shares" in _state:
            _told()


__all__ = ["get_num_threads", "set_num_threads"]
