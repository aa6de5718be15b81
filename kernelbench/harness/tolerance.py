"""The rule of comparison: is an element that was put out right?

|got - right| <= atol + rtol * |right| in double precision; NaN never is, not even beside NaN, and an infinity only beside
the same infinity. tests/comparison/cases.json says what that means case by case, for every implementation of it.
"""

import torch

CHUNK = 1 << 24


def wrong(right, got, atol, rtol):
    """Which elements are wrong; both have one type and shape."""
    if not (right.is_floating_point() or right.is_complex()):
        return apart(right, got) > allowed(right.double(), atol, rtol)
    r, g = widened(right), widened(got)
    finite = r.isfinite() & g.isfinite()
    return torch.where(finite, (g - r).abs() > allowed(r, atol, rtol), r != g)


def allowed(right, atol, rtol):
    return atol + rtol * right.abs()


def widened(tensor):
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def has_eight_bits(tensor):
    return tensor.is_floating_point() and tensor.element_size() == 1


def computable(tensor):
    """The tensor; of floats of eight bits, with which torch computes nothing, the same in single precision."""
    return tensor.float() if has_eight_bits(tensor) else tensor


def apart(right, got):
    """The distance of whole numbers, rounded once: 64 bits of difference are more than 64-bit arithmetic holds."""
    r, g = right.to(torch.int64), got.to(torch.int64)
    high, low = (g >> 32) - (r >> 32), (g & 0xFFFFFFFF) - (r & 0xFFFFFFFF)
    return (high.double() * 2.0**32 + low.double()).abs()


def clearly_right(pairs, atol, rtol):
    """Whether all elements of all these pairs of flat tensors are right, with one look at the device; False where it would
    take a closer look."""
    if not all(right.is_floating_point() for right, _ in pairs):
        return False
    most = [one for right, got in pairs for one in excesses(right, got, rtol)]
    return not most or bool((torch.stack([one.double() for one in most]) < 0.999 * atol).all())


def excesses(right, got, rtol):
    """By how much |g - r| exceeds what the rule allows relative to r, at most, in single precision: what passes this, a
    little tightened, passes the rule. A NaN is beyond everything."""
    narrow = right.element_size() <= 2
    for start in range(0, right.numel(), CHUNK):
        r, g = right[start : start + CHUNK], got[start : start + CHUNK]
        r, g = (r.float(), g.float()) if narrow else (r, g)
        yield torch.sub(g, r).abs_().sub_(r.abs(), alpha=0.999 * rtol).max()


def bits(tensor):
    """The same memory as whole numbers, so that NaN equals itself."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds.get(tensor.element_size())
    return tensor.contiguous().view(kind) if kind else torch.view_as_real(tensor)
