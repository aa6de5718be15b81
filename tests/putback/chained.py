"""Does one kernel stand in the place of two calls where it was certified, and do both stay where it was not? On the stand-in."""

import sys

import sglang.srt.plugins
from sglang.kernels.jit.utils import compile as jit
from torch import Tensor

sglang.srt.plugins.load_plugins()
package = sys.modules["warpsmith_sglang_qknorm_rope"]
from sglang.srt.models.qwen3 import Qwen3Attention  # noqa: E402, as a model is loaded: after plug-ins

MiB = 1 << 20
counted = lambda: package.counters()["qknorm_rope"]["bf16"]


def arrays(tokens=16, heads=32, start=0, length=4096, **more):
    at = lambda place: start + place * 64 * MiB
    q, k = Tensor((tokens, heads, 128), start=at(1), **more), Tensor((tokens, 8, 128), start=at(2), **more)
    weights = [Tensor((128,), start=at(3)), Tensor((128,), start=at(4))]
    table = Tensor((length, 128), dtype="torch.float32", start=at(5))
    return q, k, weights, table, Tensor((tokens,), dtype="torch.int64", start=at(6))


def ran(layer, *given, **more):
    """What ran for a call of the layer: the steps, or ours; and what was counted."""
    was, before = dict(counted()), len(jit.called)
    layer.forward_prepare_native(*given, **more)
    new = [what for what, times in counted().items() if times != was.get(what, 0)]
    names = [str(name).rsplit("/", 1)[-1] for name, _ in jit.called[before:]]
    return names, sorted(new)


def breaks(layer, **does):
    """What comes behind a call that was put off is another one than was seen."""
    try:
        ran(layer, *arrays(), **does)
    except RuntimeError as wrong:
        assert "WARPSMITH_SGLANG=off" in str(wrong)
    else:
        raise AssertionError(f"{does}: wrong results without a word")


BOTH, OURS = ["qknorm", "rope"], ["qknorm_rope.cuh"]


def served():
    layer = Qwen3Attention()
    assert ran(layer, *arrays()) == (BOTH, []), "a layer is watched first"
    assert ran(layer, *arrays()) == (OURS, ["hit"])
    assert ran(layer, *arrays(2000)) == (BOTH, []), "other numbers of tokens may go another way"
    assert ran(layer, *arrays(2000)) == (OURS, ["hit"])
    assert ran(layer, *arrays(2001)) == (BOTH, ["axis tokens"])
    assert ran(layer, *arrays(start=16)) == (BOTH, ["alignment"])
    q, k, weights, table, places = arrays()
    assert ran(layer, q, q, weights, table, places)[0] == BOTH, "other kinds of arrays are watched anew"
    assert ran(layer, q, Tensor((16, 8, 128), start=q.start), weights, table, places) == (BOTH, ["overlap"])
    breaks(layer, is_neox=False)
    breaks(layer, does="other arrays")
    breaks(layer, does="twice")
    assert ran(layer, *arrays()) == (OURS, ["hit"]), "what went wrong is over"
    package.use(False)
    assert ran(layer, *arrays()) == (BOTH, [])
    package.use(True)
    assert ran(layer, *arrays()) == (OURS, ["hit"])
    assert ran(Qwen3Attention(), *arrays()) == (BOTH, []), "each layer is watched"
    from sglang.kernels.ops.layernorm.norm import fused_inplace_qknorm

    fused_inplace_qknorm(*arrays()[:2], *weights, eps=1e-6)
    assert jit.called[-1][0] == "qknorm", "outside of a layer nothing is put off"


def not_followed():
    layer = Qwen3Attention()
    assert ran(layer, *arrays(), does="norm alone") == (["qknorm"], [])
    assert ran(layer, *arrays(), does="norm alone") == (["qknorm"], []), "never put off where nothing follows"
    try:
        ran(layer, *arrays(), does="fails")
    except KeyError:
        pass
    ran(layer, *arrays())
    breaks(layer, does="norm alone")
    assert ran(layer, *arrays()) == (OURS, ["hit"]), "what went wrong is over"


def asked():
    """A step's call is the one that was taken out, whether what it asks for beside its arrays is said or left out."""
    from importlib import import_module

    step = {"parameters": ["middle", "to", "size"], "only": {"size": 128, "packed": False}}
    chain = object.__new__(import_module(f"{package.__name__}.chains").Chain)
    chain.said = {"steps": [step]}
    given = lambda *args, **keywords: chain.given(0, args, keywords)
    whole = {"middle": 1, "to": 2}
    for args, keywords in [((1, 2), {}), ((1, 2, 128), {}), ((1,), {"to": 2}), ((1, 2), {"packed": False, "mask": None})]:
        assert given(*args, **keywords) == whole, (args, keywords)
    for args, keywords in [((1, 2, 64), {}), ((1, 2), {"packed": True}), ((1, 2), {"mask": 0}), ((1,), {}), ((1, 2, 128, 0), {})]:
        assert given(*args, **keywords) is None, (args, keywords)
    # As SGLang 0.5.17 hands them on: every argument by its place, sizes that an array has too.
    step.update(parameters=["middle", "to", "size", "packed", "mask"], none=["mask"], last_axis={"dim": "middle"})
    middle = Tensor((16, 128), start=0)
    for args, keywords in [((middle, 2, 128, False, None), {"dim": 128}), ((middle, 2), {"dim": 0}), ((middle, 2), {})]:
        assert given(*args, **keywords) == {"middle": middle, "to": 2}, (args, keywords)
    for args, keywords in [((middle, 2, 128, False, 0), {}), ((middle, 2, 128, True, None), {}), ((middle, 2), {"dim": 64})]:
        assert given(*args, **keywords) is None, (args, keywords)


def left(why):
    layer = Qwen3Attention()
    ran(layer, *arrays())
    assert ran(layer, *arrays()) == (BOTH, [why, "not in place"]), why
    assert ran(layer, *arrays()) == (BOTH, ["not in place"])


CASES = {"served": served, "asked": asked, "not followed": not_followed, "header differs": lambda: left("header differs"), "not built": lambda: left("not built")}
CASES[sys.argv[1]]()
print("as it says:", sys.argv[1])
