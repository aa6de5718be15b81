"""Does SGLang, or a stand-in for it, find the plug-in, and does the guard decide as it says? Ends with an AssertionError if not."""

import os
import pathlib
import signal
import sys
import time

import sglang.srt.plugins
from sglang.kernels.jit.utils import compile as jit
from torch import Tensor, cuda

FAR = 1 << 40
WRAPPERS = [
    ("run_activation", "ActivationKernel<bf16_t, true>::run_activation"),
    ("run_unary_activation", "ActivationKernel<bf16_t, true>::run_unary_activation"),
]
# In a list, where no hook looks for it.
BEFORE = [jit.load_jit]
ORIGINAL = "elementwise/activation.cuh"
sglang.srt.plugins.load_plugins()
package = sys.modules["warpsmith_sglang_silu_and_mul"]
counted = lambda: package.counters()["silu_and_mul"]["bf16"]


def build(wrappers=WRAPPERS, file=ORIGINAL):
    from sglang.kernels.jit.utils import load_jit

    assert load_jit is not BEFORE[0], "the hook is not in place"
    return load_jit("activation", "bf16_t", cuda_files=[file], cuda_wrappers=wrappers)


def served(module, input, out, kind="silu"):
    """Who served: ours, or the original and why."""
    was = dict(counted())
    module.run_activation(input, out, kind)
    file, export = jit.called[-1]
    assert export == "run_activation"
    new = {what: times - was.get(what, 0) for what, times in counted().items() if times != was.get(what, 0)}
    assert (file != ORIGINAL) == ("hit" in new), (file, new)
    return next(iter(new), "another operator")


def pair(tokens, hidden, **more):
    return Tensor((tokens, 2 * hidden), **more), Tensor(
        (tokens, hidden), start=FAR, **{k: v for k, v in more.items() if k == "dtype"}
    )


def certified():
    module = build()
    assert [file == ORIGINAL for _, file in jit.built] == [True, False], jit.built
    assert jit.built[0][0] != jit.built[1][0], "both modules have one name"
    assert served(module, *pair(16, 4096)) == "hit"
    assert served(module, *pair(2048, 1024)) == "hit"
    assert served(module, *pair(300, 4096)) == "hit"
    # The same once more, from the guard's memory.
    assert served(module, *pair(16, 4096)) == "hit"
    assert served(module, *pair(16, 2048)) == "axis hidden"
    assert served(module, *pair(2049, 4096)) == "axis tokens"
    assert served(module, *pair(0, 4096)) == "axis tokens"
    assert served(module, *pair(16, 4092)) == "constraint"
    assert served(module, *pair(16, 4096, dtype="torch.float16")) == "dtype"
    input, out = pair(16, 4096)
    assert served(module, Tensor((16, 8192), start=16), out) == "alignment"
    assert served(module, Tensor((16, 8192), start=FAR), out) == "overlap"
    assert served(module, Tensor((16, 8192), strides=(1, 16)), out) == "layout"
    assert served(module, Tensor((16, 4096)), out) == "shape"
    assert served(module, Tensor((1, 16, 8192)), out) == "rank"
    assert served(module, input, out, "gelu") == "another operator"
    package.use(False)
    assert served(module, input, out) == "switched off"
    package.use(True)
    assert served(module, input, out) == "hit"
    module.run_unary_activation(input, out)
    assert jit.called[-1] == (ORIGINAL, "run_unary_activation")


def other_instance():
    build([("run_activation", "ActivationKernel<fp16_t, true>::run_activation")])
    build(file="elementwise/other.cuh")
    assert all("warpsmith" not in str(args) for args, _ in jit.built), jit.built


def other_gpu():
    cuda.capability = (10, 0)
    assert served(build(), *pair(16, 4096)) == "device"


def constraints():
    module = build()
    assert served(module, *pair(4000, 512)) == "hit"
    assert served(module, *pair(16, 4092)) == "constraint"


def left_alone(why):
    module = build()
    assert all("warpsmith" not in str(args) for args, _ in jit.built), jit.built
    assert counted() == {"hit": 0, why: 1}, counted()
    module.run_activation(*pair(16, 4096), "silu")
    assert jit.called[-1] == (ORIGINAL, "run_activation")


def killed():
    assert served(build(), *pair(16, 4096)) == "hit"
    print("as it says: killed", flush=True)
    patience = time.monotonic() + 60
    while not list(pathlib.Path(os.environ["WARPSMITH_SGLANG_COUNTERS"]).glob("*.json")):
        assert time.monotonic() < patience, "no counters were kept"
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def off():
    from sglang.kernels.jit.utils import load_jit

    assert load_jit is BEFORE[0]


CASES = {
    "certified": certified,
    "other instance": other_instance,
    "other gpu": other_gpu,
    "constraints": constraints,
    "killed": killed,
    "off": off,
    "file differs": lambda: left_alone("file differs"),
    "header differs": lambda: left_alone("header differs"),
    "not built": lambda: left_alone("not built"),
}
CASES[sys.argv[1]]()
print("as it says:", sys.argv[1])
