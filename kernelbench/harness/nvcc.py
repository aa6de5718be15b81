"""How is one CUDA source compiled on two cores?

nvcc reads a source for the host, then for the device, then compiles the host's half. It says itself which commands it would
run; here the first two parts go side by side. Where what it says looks different from that, or one of them fails, nvcc does
it alone: what it then says of a source that is wrong is its own.
"""

import hashlib
import os
import re
import subprocess
import threading

# What nvcc runs for one source and one architecture, each command by what it holds.
STEPS = [r" -E ", r"cudafe\+\+", r" -E ", r"/cicc\"? ", r"ptxas", r"fatbinary", r" -c -x c\+\+ "]
REDIRECTED = re.compile(r'\s+>\s*"?/[^\s"]+"?(\s+2>\s*"?/[^\s"]+"?)?\s*$')
TOO_LONG = "the compiler took too long"
MODULE = re.compile(r'--gen_module_id_file --module_id_file_name "([^"]+)"')


class Fails(Exception):
    """A command failed: what it said."""


def plan(line, folder):
    """The commands for this command line of nvcc, and their environment; None where they are not those known here."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    try:
        asked = subprocess.run([*line, "--dryrun"], cwd=folder, timeout=20, check=False, **pipes)
    except subprocess.TimeoutExpired:
        return None
    environment, commands = dict(os.environ), []
    for told in asked.stderr.decode(errors="replace").splitlines():
        if not told.startswith("#$ "):
            continue
        name, equals, value = told[3:].partition("=")
        if equals and re.fullmatch(r"\w+", name):
            environment[name] = value
        elif not told.startswith("#$ rm "):
            # Into files of its own, which others may not write, and where nobody would read what went wrong.
            commands.append(REDIRECTED.sub("", told[3:]))
    known = not asked.returncode and len(commands) == len(STEPS)
    return (commands, environment) if known and all(map(re.search, STEPS, commands)) else None


def compile_apart(line, folder, patience):
    """Runs what nvcc would for this command line; false where nvcc is to do it alone."""
    planned = plan(line, folder)
    module = MODULE.search(planned[0][1]) if planned else None
    if not module:
        return False
    commands, environment = planned
    # What both halves call what is local to this source: as a rule, the first makes it up, and the second waits for it.
    digest = hashlib.sha256(f"{folder} {line} {os.getpid()}".encode()).hexdigest()[:16]
    with open(os.path.join(folder, module[1]), "w", encoding="utf-8") as file:
        file.write(f"_{digest[:8]}_6_source_{digest[8:]}")
    commands[1] = commands[1].replace("--gen_module_id_file ", "", 1)
    failed = []

    def chain(commands):
        for command in commands:
            if said := complaint(["/bin/sh", "-c", command], folder, patience, environment):
                return failed.append(said)

    device = threading.Thread(target=chain, args=(commands[2:6],))
    device.start()
    chain(commands[:2])
    device.join()
    if not failed:
        chain(commands[6:])
    if TOO_LONG in failed:
        raise Fails(TOO_LONG)
    return not failed


def complaint(command, folder, patience, environment=None):
    """Runs a command; what it said where it failed, else nothing."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, timeout=patience, check=False, **pipes)
    except subprocess.TimeoutExpired:
        return TOO_LONG
    if not done.returncode:
        return ""
    return done.stdout.decode(errors="replace").strip() or f"the compiler ended with {done.returncode}"
