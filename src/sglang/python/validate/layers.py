"""Do SGLang's layers use the kernel, and does what they give stay the same?"""

import dataclasses
import sys
import types

from clock import Way, compare, ratio
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


def norm(dtype, tokens):
    import torch
    from sglang.srt.layers.layernorm import RMSNorm

    layer = RMSNorm(4096, eps=1e-5).cuda().to(dtype)
    layer.weight.data.uniform_(0.5, 1.5)
    make = lambda i: {
        "x": torch.randn(tokens, 4096, device="cuda", dtype=dtype),
        "residual": torch.randn(tokens, 4096, device="cuda", dtype=dtype),
    }
    return make, lambda values: layer(values["x"], values["residual"])


def gate(dtype, tokens):
    import torch
    from sglang.srt.layers.activation import SiluAndMul

    try:
        layer = SiluAndMul()
    except ValueError:
        published()
        layer = SiluAndMul()
    make = lambda i: {"x": torch.randn(tokens, 2 * 8192, device="cuda", dtype=dtype)}
    return make, lambda values: layer(values["x"])


LAYERS = {"fused_add_rmsnorm": ("RMSNorm", norm), "silu_and_mul": ("SiluAndMul", gate)}


def run(told, operator, package, repetitions):
    """The layer of this operator, with the kernel on and off."""
    import torch

    name, build = LAYERS[operator.name]
    what = f"layer {name} ({operator.dtype})"
    try:
        said = told.result["stand_ins"]
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[operator.dtype]
        for tokens in (64, 1024):
            with torch.inference_mode():
                one(told, operator, package, repetitions, name, tokens, *build(dtype, tokens), said)
    except Exception as error:
        told.not_done(what, last_line(error))


def one(told, operator, package, repetitions, name, tokens, make, call, said):
    import torch

    hits = lambda: sum(
        types.get(operator.dtype, {}).get("hit", 0)
        for key, types in package.counters().items()
        if key == operator.name
    )
    values = make(0)
    copies = [{key: value.clone() for key, value in values.items()} for _ in range(2)]
    package.use(False)
    theirs = call(copies[0])
    package.use(True)
    before = hits()
    ours = call(copies[1])
    torch.cuda.synchronize()
    hit = hits() > before
    pairs = zip(*[out if isinstance(out, tuple) else (out,) for out in (theirs, ours)])
    near = all(torch.allclose(one.float(), other.float(), rtol=1.6e-2, atol=1e-2) for one, other in pairs)
    told.checked(
        operator.name,
        operator.dtype,
        f"layer {name}, {tokens} tokens, kernel on and off",
        hit and near,
        "" if hit and near else ("the outputs differ" if hit else "the layer did not call the kernel"),
    )
    if not repetitions:
        return
    ways = [
        Way("original", lambda: package.use(False), call),
        Way("optimized", lambda: package.use(True), call),
    ]
    compare(ways, make, repetitions)
    package.use(True)
    entry = {
        "operator": operator.name,
        "dtype": operator.dtype,
        "layer": name,
        "tokens": tokens,
        "stand_ins": said,
    }
    entry["device_us"] = {way.name: sorted(way.samples)[len(way.samples) // 2] * 1e6 for way in ways}
    entry["host_us"] = {way.name: sorted(way.host)[len(way.host) // 2] * 1e6 for way in ways}
    entry["speedup"] = ratio(ways[0].samples, ways[1].samples)
    told.result["layers"].append(entry)
    off, on = (entry["device_us"][way.name] for way in ways)
    what = f"{name} {operator.dtype} {tokens} tokens"
    told.say(f"time   layer {what}: off {off:.2f} us, on {on:.2f} us, {entry['speedup']['ratio']:.3f}x")
