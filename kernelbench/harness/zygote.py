"""The zygote: imports torch once, and forks either side as often as it is asked to.

It runs nobody's code and knows no secret. A fork is the program's own child (CLONE_PARENT, clone(2)), which ends and reaps it
as one that it has started, and leads a session of its own. It takes on its confinement before its script.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import platform
import runpy
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import confine  # noqa: E402
import extension  # noqa: E402
import signature  # noqa: E402
import wire  # noqa: E402

CLONE = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT, SETTID, CLEARTID = 0x8000, 0x01000000, 0x00200000
PR_SET_NAME, PR_GET_TID_ADDRESS = 15, 40


def fork():
    """As os.fork(), but the child is the parent's sibling. No lock is held by another thread, for there is none."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise OSError("there are threads beside the first")
    address = ctypes.c_void_p()
    confine.call("prctl", PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0)
    number = CLONE[platform.machine()]
    flags = CLONE_PARENT | SETTID | CLEARTID | signal.SIGCHLD
    python, at = ctypes.pythonapi, [ctypes.c_ulong(value or 0) for value in (flags, 0, 0, address.value, address.value)]
    python.PyOS_BeforeFork()
    id = ctypes.PyDLL(None, use_errno=True).syscall(ctypes.c_long(number), *at)
    if id == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if id < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return id


def serve(line):
    """Forks as often as it is asked to; in a fork, returns what was asked."""
    while (asked := line.hear()) is not None:
        control, output = asked["descriptors"]
        leads, led = os.pipe()
        try:
            id = fork()
        except Exception as error:
            said = {"refused": f"{type(error).__name__}: {error}"}
        else:
            if id == 0:
                os.setsid()
                os.close(leads)
                os.close(led)
                return asked
            os.close(led)
            led = None
            os.read(leads, 1)  # until it leads a session of its own
            said = {"forked": id}
        for descriptor in filter(None, (leads, led, control, output)):
            os.close(descriptor)
        line.say(said | {"nonce": asked["nonce"]})
    sys.exit()


def become(asked):
    """Takes on what a fork was asked to be, and runs its script."""
    control, output = asked["descriptors"]
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    tempfile.tempdir = None
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # or all forks would draw alike, and each could foretell what another draws
    if asked["confinement"] is not None:
        os.write(control, json.dumps(confine.apply(asked["confinement"])).encode())
    else:
        confine.die_with(os.getppid())
    confine.call("prctl", confine.PR_SET_DUMPABLE, 1, 0, 0, 0)
    name_itself(asked["script"])
    sys.argv = [asked["script"], str(control)]
    runpy.run_path(asked["script"], run_name="__main__")


def name_itself(script):
    """For whoever lists processes: forks have one command line."""
    confine.call("prctl", PR_SET_NAME, ctypes.c_char_p(os.path.basename(script).encode()), 0, 0, 0)


def import_all(modules):
    """`cpp_extension` asks whether there is a GPU while it is imported, which would start the driver: no fork could use it."""
    asked, torch.cuda.is_available = torch.cuda.is_available, lambda: True
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    torch.cuda.is_available = asked


def main():
    confine.call("prctl", confine.PR_SET_DUMPABLE, 0, 0, 0, 0)
    line = wire.Line(int(sys.argv[1]))
    setup = line.hear()
    if setup["device"] != "cpu":
        import_all(extension.USUAL)
    signature.imported()
    line.say({"imported": True})
    line.hear()
    gc.collect()
    gc.freeze()
    name_itself(__file__)
    line.say({"ready": torch.__version__})
    asked = serve(line)
    line.socket.close()
    del line
    become(asked)


if __name__ == "__main__":
    main()
