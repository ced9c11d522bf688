"""What Linux is told about threads that work through batches beside one that answers."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

# The numbers of sched_setattr(2), which neither Python nor every C library has by name.
_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}
# size, policy, flags, nice, priority, runtime, deadline, period: struct sched_attr, the first version.
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
LONGEST_SLICE_NANOSECONDS = 100_000_000


def let_others_first() -> bool:
    """Let whoever wakes have the calling thread's core at once, without taking processor time away from the thread.

    Since Linux 6.12 a thread may say how long a slice it asks for, and one with a shorter slice need not wait for its
    end: by default a woken thread waits up to 4 ms for one that computes. Returns whether the kernel took it; older
    ones ignore the slice, other systems know nothing of it, and nothing changes.
    """
    number = _SET_ATTRIBUTES.get(platform.machine())
    if sys.platform != "linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, LONGEST_SLICE_NANOSECONDS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, wanted, 0) == 0)
