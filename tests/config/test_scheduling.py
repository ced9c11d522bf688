"""What the kernel itself says of a thread that lets others first."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading

import pytest

from config.scheduling import LONGEST_SLICE_NANOSECONDS, let_others_first

GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}
ATTRIBUTES = struct.Struct("=IIQiIQQQ")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in GET_ATTRIBUTES, reason="needs Linux on x86_64 or aarch64"
)


def slice_nanoseconds() -> int:
    """Of the calling thread; 0 where the kernel has no slices of threads."""
    read = ctypes.create_string_buffer(ATTRIBUTES.size)
    assert ctypes.CDLL(None).syscall(GET_ATTRIBUTES[platform.machine()], 0, read, ATTRIBUTES.size, 0) == 0
    return int(ATTRIBUTES.unpack(read.raw)[5])


def test_one_thread_asks_for_the_longest_slice_and_keeps_all_else() -> None:
    seen: list[tuple[bool, int, int, int]] = []

    def run() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 7)
        taken = let_others_first()
        seen.append((taken, slice_nanoseconds(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)))

    before = slice_nanoseconds()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if not before:
        pytest.skip("needs Linux 6.12, which knows slices of threads")
    assert seen == [(True, LONGEST_SLICE_NANOSECONDS, 7, os.SCHED_OTHER)]
    assert slice_nanoseconds() == before


def test_a_thread_whose_policy_somebody_chose_is_left_alone() -> None:
    taken: list[bool] = []

    def run() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        taken.append(let_others_first())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert taken == [False]
