"""Becomes another program that ends when the process which started it ends; run as a file, it imports nothing of ours.

``python embedded_guard.py SIGNAL PARENT USER COMMAND…`` becomes USER (a number, or '' for no change), asks
the kernel for SIGNAL at the death of PARENT, and turns into COMMAND: no process stays between the two. Where a
kernel has no such wish (macOS), COMMAND outlives a killed parent; the next ``roundelay up`` finds it by the
lock that it still has and ends it.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Turn into the command; exit at once if the parent is already gone."""
    signal_number, parent, user, *command = arguments
    if user:  # before the wish, which the kernel forgets when the user changes
        os.setgroups([])
        os.setuid(int(user))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))
    if os.getppid() != int(parent):
        sys.exit("the process that started this one has ended")
    os.execvp(command[0], command)  # noqa: S606  # no shell is wanted: this is the command itself


if __name__ == "__main__":
    main(sys.argv[1:])
