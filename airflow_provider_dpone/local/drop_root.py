"""``python drop_root.py COMMAND...``: runs a command as nobody when started by root, for PostgreSQL refuses to be root.

The command keeps the one capability to pass through directories that only root may enter (a virtual environment under
a home directory, for example), so that no permission has to be changed. Does nothing but exec for anybody else.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 47, 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522


def drop_root() -> None:
    """Become nobody, keeping CAP_DAC_OVERRIDE across the exec that follows."""
    nobody = pwd.getpwnam("nobody")
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
    bit = 1 << _CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    _check(libc.capset(header, data))
    _check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    if os.geteuid() == 0:
        drop_root()
    os.execv(sys.argv[1], sys.argv[1:])
