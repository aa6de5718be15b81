"""The trusted side: reads the problem, draws inputs from secret seeds, and compares what was put out, every element.

It never loads a candidate's code. What it holds of a candidate are bytes.
"""

import ctypes
import fcntl
import linecache
import mmap
import os
import sys
import traceback
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import compare  # noqa: E402
import facts  # noqa: E402
import memory  # noqa: E402
import outputs  # noqa: E402
import signature  # noqa: E402
import wire  # noqa: E402
from draw import mapped_tensors, padded, signed, tensors  # noqa: E402
from tolerance import has_eight_bits  # noqa: E402

HOARD = 24 << 30
MOST_TENSORS = 1024  # of all inputs of one side: a message names each
CONTRACT = ("Model", "get_inputs", "get_init_inputs")


class Verifier(outputs.Outputs):
    def __init__(self, setup):
        self.device, self.flops = torch.device(setup["device"]), None
        torch.set_num_threads(setup["threads"])
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.zeros(1, device=self.device)
            torch.cuda.synchronize()

    def facts(self, _):
        return facts.facts(self.device)

    def scan(self, message):
        """What a call takes and computes, as far as that is found without the device and without computing anything; in a
        namespace of its own, for what the problem keeps of such a call holds no values."""
        self.dtype, self.casts_all, self.flops = wire.dtype_of(message["dtype"]), message["casts_all"], None
        try:
            names = load(message["path"])
            with torch.device("meta"):
                init, inputs = list(names["get_init_inputs"]()), list(names["get_inputs"]())
            call = signature.called(names["Model"], init, inputs)
            held = lambda values: sum(padded(self.cast(t)) for t in values)  # noqa: E731
            values = {"inputs": tensors(inputs), "outputs": tensors(call["outputs"])}
            values["parameters"] = call["model"].parameters()
            sizes = {name: held(of) for name, of in values.items()}
        except Exception:  # it looks at its values, or is no problem: whoever opens it says so
            return {"sizes": None}
        self.flops = call["flops"]
        return {"sizes": sizes}

    def open(self, message):
        """Loads the problem in a namespace of its own, and lays out an arena for each side."""
        self.dtype, self.seed = wire.dtype_of(message["dtype"]), message["seed"]
        self.casts_all, self.kept_whole = message["casts_all"], None
        *self.descriptors, self.outputs = message["descriptors"]
        self.names = load(message["path"])
        if missing := [name for name in CONTRACT if name not in self.names]:
            return {"defect": f"it defines no {', '.join(f'`{name}`' for name in missing)}"}
        self.seed_everything(self.seed)
        self.init = list(self.names["get_init_inputs"]())
        self.oracle, self.no_oracle = None, None
        with torch.no_grad():
            self.seed_everything(self.seed)
            model = self.names["Model"](*self.init)
        if self.casts_all:
            model = self.try_casts(model)
        held_in = lambda p: torch.empty(0, dtype=self.dtype if p.is_floating_point() else p.dtype)  # noqa: E731
        parameters = sum(p.numel() * held_in(p).element_size() for p in model.parameters())
        try:
            self.oracle = model.double().to(self.device)
        except Exception as error:  # no oracle is a note, not an end
            self.no_oracle = f"{type(error).__name__}: {error}"[:300]
        init = self.constructed_with()
        self.init_bytes = sum(padded(t) for t in tensors(init))
        drawn = self.generate(0)
        self.slot_bytes = sum(padded(t) for t in tensors(drawn))
        many = sum(1 for _ in tensors(drawn))
        fit = message["budget"] // max(self.slot_bytes, 1)
        self.slots = max(1, min(message["most_slots"], fit, MOST_TENSORS // max(many, 1)))
        self.order = [0, 1]
        self.make_arenas()
        return {
            **self.laid(init),
            "parameter_bytes": parameters,
            "input_bytes": sum(t.numel() * t.element_size() for t in tensors(drawn)),
            "slots": self.slots,
            "no_oracle": self.no_oracle,
            "kept_whole": self.kept_whole,
            "signature": self.signature(init, drawn),
        }

    def laid(self, init):
        """Where the arenas lie, and the constructor's arguments in them."""
        self.specs, self.sums = None, None
        laid = self.place(self.slots * self.slot_bytes, self.init_bytes, init)
        self.synchronize()
        return {"init": laid, "arenas": [spec for _, spec in self.arenas]}

    def offload(self, _):
        """Gives the GPU back what the problem holds of it, until it is laid out again; nobody else has the arenas open."""
        self.seen, self.specs, self.sums = [], None, None
        if self.oracle is not None:
            self.oracle = self.oracle.to("cpu")
        if self.device.type == "cuda":
            bases = [arena.keep for arena, _ in self.arenas]
            self.arenas = []
            torch.cuda.synchronize()
            for base in bases:
                memory.cuda().free(base)
        return memory.given_back(self.device, True)

    def lay_out(self, _):
        """As it was before it was offloaded."""
        if self.device.type == "cuda":
            self.make_arenas()
        return self.laid_again()

    def lay_out_anew(self, message):
        """The arenas of an offloaded problem as no process has had them: by turns the candidate's first and the reference's, so
        that where one lay the other lies, as a rule."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = message["descriptors"]
        self.order.reverse()
        self.make_arenas()
        return self.laid_again()

    def laid_again(self):
        if self.oracle is not None:
            self.oracle = self.oracle.to(self.device)
        return self.laid(self.constructed_with())

    def constructed_with(self):
        return mapped_tensors(self.init, lambda t: self.cast(t).to(self.device).contiguous())

    def signature(self, init, drawn):
        """What the module is constructed with and called with, as both sides get it, and what a call computes."""
        model = self.names["Model"]
        return {
            "init": signature.describe(model.__init__, init, skip=1),
            "inputs": signature.describe(model.forward, drawn, skip=1),
            "flops": self.flops if self.flops is not None else signature.flops(model, init, drawn),
            "stated": signature.stated(self.names),
        }

    def make_arenas(self):
        """The reference's and the candidate's, in the order in force. Where there is memory for one alone, that one is kept, to be
        given back."""
        self.arenas = []
        for at in self.order:
            self.arenas.append(self.new_arena(at))
        if self.order[0] == 1:
            self.arenas.reverse()

    def new_arena(self, at):
        length = max(self.slots * self.slot_bytes + self.init_bytes, mmap.PAGESIZE)
        if self.device.type == "cuda":
            base = memory.cuda().allocate(length)
            whole = memory.at_address(base, length, self.device)
            return memory.Arena(whole, base), {"handle": memory.cuda().handle_of(base), "bytes": length}
        descriptor = self.descriptors[at]
        os.ftruncate(descriptor, length)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        mapped = mmap.mmap(descriptor, length)
        return memory.Arena(torch.frombuffer(mapped, dtype=torch.uint8), mapped), {"bytes": length}

    def draw(self, message):
        """Fresh contents for the first slots, the same for both sides; the seeds stay here. Where they lie is said if it is
        not where the last ones lay."""
        specs = []
        if self.device.type == "cuda" and torch.cuda.memory_reserved() > HOARD:
            torch.cuda.empty_cache()
        for slot, seed in enumerate(message["seeds"]):
            drawn = self.generate(seed)
            if message["signed"]:
                drawn = signed(drawn)
            specs.append(self.place(slot * self.slot_bytes, self.slot_bytes, drawn))
        same, self.specs = specs == self.specs, specs
        self.sums = [[compare.checksum(t) for t in self.input_tensors(s)] for s in range(len(specs))]
        self.synchronize()
        return {} if same else {"inputs": specs}

    def place(self, start, room, drawn):
        """Writes tensors down where both sides find them."""
        at = start

        def put(tensor):
            nonlocal at
            spec = {"at": at, "shape": list(tensor.shape), "dtype": wire.name_of(tensor.dtype)}
            if at + padded(tensor) > start + room:
                raise ValueError("get_inputs() gives more bytes than it did at first")
            for arena, _ in self.arenas:
                arena.tensor(spec).copy_(tensor)
            at += padded(tensor)
            return spec

        return wire.encode(drawn, put)

    def generate(self, seed):
        """The problem's inputs: drawn on the device itself where that works, for the processor draws a billion numbers in
        five seconds. Where only memory is short that is said, and others make room. Only floating point is cast."""
        self.seed_everything(seed)
        if self.device.type == "cuda":
            try:
                with torch.device(self.device):
                    drawn = self.names["get_inputs"]()
            except Exception as error:
                if memory.is_short(error):
                    raise
                self.seed_everything(seed)
                drawn = self.names["get_inputs"]()
        else:
            drawn = self.names["get_inputs"]()
        return mapped_tensors(list(drawn), lambda t: self.cast(t).to(self.device).contiguous())

    def cast(self, tensor):
        """In the precision of the evaluation; floats of eight bits are a problem's own choice, and stay."""
        if has_eight_bits(tensor):
            return tensor
        return tensor.to(self.dtype) if self.casts_all or tensor.is_floating_point() else tensor

    def try_casts(self, model):
        """KernelBench casts every input, indices and masks too. A reference that cannot compute with them so gets them as
        they were drawn, and that is said."""
        self.casts_all = False
        if all(t.is_floating_point() for t in tensors(self.generate(0))):
            return model
        self.casts_all = True
        model = model.to(device=self.device, dtype=self.dtype)
        try:
            with torch.no_grad():
                model(*self.generate(0))
        except Exception as error:
            if memory.is_short(error):
                raise
            self.casts_all, self.kept_whole = False, f"{type(error).__name__}: {error}"[:300]
        return model

    def compare_in_place(self, message):
        """Form, elements, and what changed late, where the outputs need not be copied first."""
        found = self.ranges(message)
        return found if "form" in found else {**self.compare(message), **self.late()}

    def compare(self, message):
        """Every element of every output of every slot."""
        right, got = self.fetch(message)
        result = {"changed": self.changed_input(message["slots"])}
        errors, self.short = [], None
        same = compare.all_clearly_same(right, got, message["atol"], message["rtol"])
        for slot, ours, theirs in zip(message["slots"], right, got):
            found = None if same else compare.slot(ours, theirs, message["atol"], message["rtol"])
            if found:
                result["mismatch"] = found
                result["passed_inputs"] = compare.is_an_input(theirs, self.input_tensors(slot))
                return result
            asked = message["oracle"] is not None and self.oracle is not None
            if asked and not compare.close(ours, theirs, message["oracle"]):
                errors.append(self.errors(slot, ours, theirs))
        result["errors"] = [error for error in errors if error]
        result["no_oracle"] = self.no_oracle or self.short
        return result

    def trim_memory(self, _):
        """Lets go of a candidate's memory, and of what is kept for later."""
        self.seen = []
        return memory.given_back(self.device, True)

    def audit(self, message):
        """What passes for right that is not: the problem's own weakness, at the tolerance in use."""
        ours, _ = self.fetch(message)
        size = sum(t.numel() * t.element_size() for _, t in ours[0] if isinstance(t, torch.Tensor))
        return {"output_bytes": size, "tensors": len(ours[0]), "labels": compare.audit(ours, [self.input_tensors(s) for s in range(len(ours))], message["atol"], message["rtol"])}

    def errors(self, slot, ours, theirs):
        """Root mean square error of both against double precision, relative to the oracle's own."""
        try:
            inputs = mapped_tensors(self.input_values(slot), lambda t: t.double() if t.is_floating_point() else t)
            self.seed_everything(self.seed)
            with torch.no_grad():
                oracle = [t for t in tensors(self.oracle(*inputs))]
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:300]
            if memory.is_short(error):  # there may be some the next time
                self.short = text
            else:
                self.no_oracle, self.oracle = text, None
            return None
        pairs = [(o, a, b) for o, (_, a), (_, b) in zip(oracle, ours, theirs) if isinstance(a, torch.Tensor)]
        found = [(compare.relative_error(o, a), compare.relative_error(o, b)) for o, a, b in pairs if o.is_floating_point()]
        if not found:
            return None
        return {"reference": max(a for a, _ in found), "candidate": max(b for _, b in found)}

    def changed_input(self, slots):
        """An input that the candidate changed and the reference did not."""
        sides = [[compare.bits(t) for slot in slots for t in self.input_tensors(slot, side)] for side in range(2)]
        if compare.no_differences(ours != theirs for ours, theirs in zip(*sides)):
            return None
        for slot in slots:
            pairs = zip(*(self.input_tensors(slot, side) for side in range(2)))
            for index, (ours, theirs) in enumerate(pairs):
                same = torch.equal(compare.bits(ours), compare.bits(theirs))
                if not same and int(compare.checksum(ours)) == int(self.sums[slot][index]):
                    return index
        return None

    def input_values(self, slot, side=0):
        return wire.decode(self.specs[slot], self.arenas[side][0].tensor)

    def input_tensors(self, slot, side=0):
        return list(tensors(self.input_values(slot, side)))

    def seed_everything(self, seed):
        torch.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def load(path):
    with open(path, encoding="utf-8") as file:
        source = file.read()
    module = types.ModuleType("problem")
    module.__file__ = path
    sys.modules["problem"] = module
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    exec(compile(source, path, "exec"), module.__dict__)
    return module.__dict__


def answer(verifier, message):
    try:
        return getattr(verifier, message["do"])(message)
    except Exception as error:  # goes to the program as the problem's or the machine's fault
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        kind = f"{type(error).__name__}: {error}"[:2000]
        said = {"error": kind, "traceback": text[-8000:], "memory": memory.is_short(error)}
        return {"raised": said}


def close_own_memory():
    """No other process of this user may look in here."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def main():
    close_own_memory()
    line = wire.Line(int(sys.argv[1]))
    setup = line.hear()
    signature.imported()
    line.say({"imported": True})
    line.hear()
    verifier = Verifier(setup)
    line.say({"ready": torch.__version__})
    while (message := line.hear()) is not None:
        result = answer(verifier, message)
        result["nonce"] = message["nonce"]
        line.say(result)


if __name__ == "__main__":
    main()
