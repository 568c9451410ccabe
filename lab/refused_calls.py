"""System calls that are refused, as in containers: a filter of seccomp around whatever is tested."""

from __future__ import annotations

import platform
import sys

#: What needs the right to look into another process, or to mount, by machine.
_NUMBERS = {
    "x86_64": {"kcmp": 312, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438, "unshare": 272},
    "aarch64": {"kcmp": 272, "process_vm_readv": 270, "process_vm_writev": 271, "pidfd_getfd": 438, "unshare": 97},
}
_REFUSE = """
import ctypes, os, struct, sys
numbers, command = [int(number) for number in sys.argv[1].split(",")], sys.argv[2:]
words = [(0x20, 0, 0, 0)]  # The number of the call.
for number in numbers:
    words += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]  # EPERM.
words += [(0x06, 0, 0, 0x7FFF0000)]
program = b"".join(struct.pack("HBBI", *word) for word in words)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("words", ctypes.c_char_p)]
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
assert prctl(22, 2, ctypes.byref(Program(len(words), program))) == 0, os.strerror(ctypes.get_errno())
os.execvp(command[0], command)
"""


def refusing(*names: str) -> list[str]:
    """A command before a command for which these calls, all of them without names, fail with EPERM."""
    numbers = _NUMBERS[platform.machine()]
    return [sys.executable, "-ISc", _REFUSE, ",".join(str(numbers[name]) for name in names or numbers)]
