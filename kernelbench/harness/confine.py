"""How does a process that was forked take on its confinement? The program says layer by layer what to do."""

import ctypes
import os
import resource
import signal
import stat
import struct

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF, CAPSET = 444, 445, 446, {"x86_64": 126, "aarch64": 91}
PATH_BENEATH = 1
CAPABILITIES = 64

LIBC = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """A function of libc that answers below zero where it fails."""
    done = getattr(LIBC, name)(*(ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments))
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return done


def syscall(number, *arguments):
    return call("syscall", number, *arguments)


def unshare(ways):
    """The first of these ways that this system allows."""
    for way in ways[:-1]:
        if LIBC.unshare(way) == 0:
            return
    call("unshare", ways[-1])


def become(asked):
    """Gives up all privileges, and becomes the user."""
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(CAPABILITIES):
        LIBC.prctl(PR_CAPBSET_DROP, *(ctypes.c_ulong(v) for v in (capability, 0, 0, 0)))
    if (user := asked["user"]) is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    syscall(CAPSET[os.uname().machine], header, none)
    if asked["short_of"]:
        raise OSError(asked["short_of"])


def limit(rows):
    for which, value in rows:
        resource.setrlimit(which, (value, value))


def landlock(asked):
    """Paths that may be read or written, and no others; connections to none; signals to nobody outside."""
    version = syscall(CREATE_RULESET, None, 0, 1)
    fs, net, scope = (asked[name][min(version, len(asked[name])) - 1] for name in ("fs", "net", "scope"))
    handled = (ctypes.c_uint64 * 3)(fs, net, scope)
    ruleset = syscall(CREATE_RULESET, handled, ctypes.sizeof(handled), 0)
    for rights, paths in asked["paths"]:
        for path in paths:
            try:
                under = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # it is not here
            of_a_folder = stat.S_ISDIR(os.fstat(under).st_mode)
            given = rights & fs & (~0 if of_a_folder else asked["of_a_file"])
            syscall(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("<Qi", given, under), 0)
            os.close(under)
    syscall(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def fail(why):
    raise OSError(why)


def die_with(parent):
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


STEPS = {"unshare": unshare, "become": become, "limit": limit, "landlock": landlock, "fail": fail, "die_with": die_with}


def apply(layers):
    """Each layer, and how it came out."""
    return [one(layer) for layer in layers]


def one(layer):
    ((step, asked),) = layer["step"].items()
    try:
        STEPS[step](asked)
    except Exception as error:
        return {"name": layer["name"], "in_force": False, "why": str(error)}
    return {"name": layer["name"], "in_force": True, "why": layer["does"]}
