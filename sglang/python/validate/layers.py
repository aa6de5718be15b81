"""Do SGLang's layers use the kernel, and does what they give stay the same?"""

import dataclasses
import sys
import traceback
import types

from calls import settled, torch_dtype
from clock import Way, compare, reported
from told import last_line


def stand_ins():
    """What SGLang's layers import and kernels have nothing to do with, where it is not installed or too new."""
    said = []
    try:
        import IPython  # noqa: F401
    except ImportError:
        display = types.ModuleType("IPython.display")
        display.HTML, display.display = object, print
        package = types.ModuleType("IPython")
        package.display = display
        sys.modules.update({"IPython": package, "IPython.display": display})
        said.append("a stand-in for IPython")
    try:
        from transformers.models.auto import configuration_auto as auto

        known = auto._LazyConfigMapping.register
        auto._LazyConfigMapping.register = lambda self, key, value, exist_ok=False: known(
            self, key, value, exist_ok=True
        )
        said.append("transformers lets a model's configuration be registered twice")
    except (ImportError, AttributeError):
        pass
    return said


def published():
    """Server settings as they are when nothing is set: some layers ask for them."""
    from sglang.srt import runtime_context
    from sglang.srt.server_args import ServerArgs

    settings = ServerArgs.__new__(ServerArgs)
    for field in dataclasses.fields(ServerArgs):
        value = None
        if field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        object.__setattr__(settings, field.name, value)
    runtime_context.publish(settings, role="scheduler")


def norm(dtype, tokens, hidden, draw):
    from sglang.srt.layers.layernorm import RMSNorm

    layer = RMSNorm(hidden, eps=1e-5).to(device=draw.device, dtype=dtype)
    layer.weight.data.uniform_(0.5, 1.5, generator=draw)
    make = lambda i: {name: drawn((tokens, hidden), dtype, draw) for name in ("x", "residual")}
    return make, lambda values: layer(values["x"], values["residual"])


def gate(dtype, tokens, hidden, draw):
    from sglang.srt.layers.activation import SiluAndMul

    try:
        layer = SiluAndMul()
    except ValueError:
        published()
        layer = SiluAndMul()
    make = lambda i: {"x": drawn((tokens, 2 * hidden), dtype, draw)}
    return make, lambda values: layer(values["x"])


def drawn(shape, dtype, draw):
    """From a generator of its own: a capture that failed may leave torch's unusable."""
    import torch

    return torch.randn(shape, device=draw.device, dtype=dtype, generator=draw)


# The layer of an operator, the size of its rows, and how it is made.
LAYERS = {"fused_add_rmsnorm": ("RMSNorm", 4096, norm), "silu_and_mul": ("SiluAndMul", 8192, gate)}


def run(told, operator, package, repetitions):
    """The layer of this operator, with the kernel on and off."""
    import torch

    name, hidden, build = LAYERS[operator.name]
    draw = torch.Generator(device=operator.device).manual_seed(4000)
    for tokens in (64, 1024):
        shape = {"tokens": tokens, "hidden": hidden}
        what = f"layer {name} ({operator.dtype}), {tokens} tokens"
        if not operator.is_certified(shape):
            told.not_done(what, f"rows of {hidden} or {tokens} of them were not certified")
            continue
        try:
            with torch.inference_mode():
                layer = build(torch_dtype(operator.dtype), tokens, hidden, draw)
                one(told, operator, package, repetitions, name, tokens, *layer)
        except Exception as error:
            traceback.print_exc()
            told.not_done(what, last_line(error))
        finally:
            package.use(True)


def one(told, operator, package, repetitions, name, tokens, make, call):
    hits = lambda: package.counters()[operator.name][operator.dtype].get("hit", 0)
    values = make(0)
    copies = [{key: value.clone() for key, value in values.items()} for _ in range(2)]
    package.use(False)
    theirs = call(copies[0])
    package.use(True)
    before = hits()
    ours = call(copies[1])
    settled(operator.device)
    how = "" if hits() > before else "the layer did not call the kernel"
    how = how or ("" if near(theirs, ours) else "the outputs differ")
    what = f"layer {name}, {tokens} tokens, kernel on and off"
    told.checked(operator.name, operator.dtype, what, not how, how)
    if not repetitions:
        return
    ways = [
        Way("original", lambda: package.use(False), call),
        Way("optimized", lambda: package.use(True), call),
    ]
    compare(ways, make, repetitions, device=operator.device)
    entry = {
        "operator": operator.name,
        "dtype": operator.dtype,
        "layer": name,
        "tokens": tokens,
        "stand_ins": told.result["stand_ins"],
    }
    entry.update(reported(ways))
    told.result["layers"].append(entry)
    off, on = (entry["device_us"][way.name] for way in ways)
    what = f"{name} {operator.dtype} {tokens} tokens"
    told.say(f"time   layer {what}: off {off:.2f} us, on {on:.2f} us")


def near(theirs, ours):
    """Whether a layer's outputs, one or a few, agree as closely as SGLang's tests of half precision ask."""
    import tolerance

    pairs = zip(*[out if isinstance(out, tuple) else (out,) for out in (theirs, ours)])
    return not any(bool(tolerance.wrong(a, b, atol=1e-2, rtol=1.6e-2).any()) for a, b in pairs)
