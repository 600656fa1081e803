"""Runs a program under the system calls that a unit of systemd's leaves it: confined.py UNIT PROGRAM ARGUMENT…

What systemd-analyze says of its groups of calls is made a filter of libseccomp's, as systemd would. Of the other settings those are
done that are filters, too, and the file mode mask.
"""
import ctypes
import errno
import os
import re
import subprocess
import sys

ALLOW, ERROR = 0x7FFF0000, 0x00050000  # of <seccomp.h>


def groups():
    """name → what is in it, as systemd here knows it."""
    told = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    found, name = {}, None
    for line in re.sub(r"\x1b\[[0-9;]*m", "", told).splitlines():
        word = line.split("#")[0].strip()
        if re.fullmatch(r"@[\w-]+", line.strip()) and not line.startswith(" "):
            name = found.setdefault(word, [])
        elif word and name is not None:
            name.append(word)
    return found


def calls(words, known):
    for word in words:
        if word.startswith("@"):
            yield from calls(known.get(word, ()), known)
        else:
            yield word


def settings(unit):
    """name → values of the section [Service]."""
    found = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", open(unit).read(), re.M):
        found.setdefault(name, []).append(value)
    return found


def confine(unit):
    said = settings(unit)
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    words = [w for line in said["SystemCallFilter"] for w in line.split()]
    f = ctypes.c_void_p(lib.seccomp_init(ERROR | getattr(errno, said["SystemCallErrorNumber"][0])))
    for name in set(calls(words, groups())):
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert lib.seccomp_rule_add(f, ALLOW, number, 0) == 0, name
    hidden = ["clone3"] if said.get("RestrictNamespaces") == ["yes"] else []
    hidden += ["openat2"] if said.get("RestrictSUIDSGID") == ["yes"] else []
    os.umask(int(said["UMask"][0], 8))
    assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    hide = ctypes.c_void_p(lib.seccomp_init(ALLOW))
    for name in hidden:  # a filter of its own, as systemd's
        lib.seccomp_rule_add(hide, ERROR | errno.ENOSYS, lib.seccomp_syscall_resolve_name(name.encode()), 0)
    assert lib.seccomp_load(hide) == 0 and lib.seccomp_load(f) == 0


if __name__ == "__main__":
    confine(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])
