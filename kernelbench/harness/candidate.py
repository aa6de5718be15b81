"""The untrusted side: loads one module, and calls its model on inputs in shared memory as often as it is asked to.

It holds neither the reference nor its outputs nor the clock that bounds its own. Nothing that it says is believed: the verifier
reads the outputs where they lie, while this process is stopped.
"""

import contextlib
import importlib
import importlib.util
import os
import struct
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import aside  # noqa: E402
import extension  # noqa: E402
import memory  # noqa: E402
import scatter  # noqa: E402
import wire  # noqa: E402


PART = 24 << 10  # characters


def import_usual():
    """What candidates for a GPU import as a rule: a process that waits has time for it."""
    for module in extension.USUAL:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


class Runner:
    def __init__(self, setup, line=None):  # under a profiler nobody hears it: it has no line
        self.aside = aside.Aside(line)
        self.device = torch.device(setup["device"])
        self.seed = setup["seed"]
        self.arena = None
        self.model = None
        self.inputs = []
        self.slots = []
        self.kept = []
        self.marks = None
        self.probe = None
        self.places = None
        self.beside = 0
        self.counted, self.table = None, ""
        torch.set_num_threads(setup["threads"])
        torch.backends.cuda.matmul.allow_tf32 = setup["tf32"]
        torch.backends.cudnn.allow_tf32 = setup["tf32"]
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            self.probe = torch.zeros(1, device=self.device)
            self.marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            for mark in self.marks:
                mark.record()
            torch.cuda.synchronize()

    def load(self, message):
        built = extension.watch(message, self.device)
        spec = importlib.util.spec_from_file_location(message["module"], message["path"])
        module = importlib.util.module_from_spec(spec)
        sys.modules[message["module"]] = module
        spec.loader.exec_module(module)
        entry = getattr(module, message["entry"], None)
        if entry is None:
            return {"missing": f"the module defines no `{message['entry']}`"}
        self.entry = entry
        return {"extensions": built}

    def construct(self, message):
        torch.backends.cudnn.allow_tf32 = message["tf32"]  # torch's own default, which KernelBench leaves as it is
        init = wire.decode(message["init"], lambda spec: self.arena.tensor(spec).clone())
        self.model = None  # where a timing is taken again, the model before makes room first
        self.seed_everything()
        with torch.no_grad():
            model = self.entry(*init)
            self.model = model.to(device=self.device, dtype=wire.dtype_of(message["dtype"]))
        if message.get("compile"):
            self.model = torch.compile(self.model, mode=message["compile"])
        return {}

    def map_inputs(self, message):
        descriptors = message.get("descriptors", [])
        self.arena = memory.open_arena(message["arena"], descriptors, self.device)
        for descriptor in descriptors:
            os.close(descriptor)
        return {}

    def set_inputs(self, message):
        self.inputs = [wire.decode(slot, self.arena.tensor) for slot in message["inputs"]]
        return {}

    def prepare(self, message):
        """All that comes before the calls, and is not timed: their inputs are drawn after this."""
        self.kept = []
        self.slots = [self.inputs[at] for at in message["slots"]]
        if self.places and not self.places.lay_out():
            self.places = None
        self.seed_everything()
        return {}

    def randomize_allocations(self, message):
        """From here on what is put out lies elsewhere in every request, where there is memory for that."""
        # Before, not meanwhile: what is still in use then stays where it is, and calls would find their memory there.
        self.kept, self.places = [], None
        self.places = scatter.Scatter(message["sizes"], message["count"], self.beside, self.device)
        return {}

    def call(self):
        """The calls; what they took by the clock in here."""
        outputs = []
        if self.marks:
            first, last = self.marks
            # The GPU comes from another process: it changes over for this, in empty requests as in others, and not for the
            # first kernel that counts.
            self.probe.zero_()
            first.record()
            with torch.no_grad():
                for slot in self.slots:
                    outputs.append(self.model(*slot))
            last.record()
            torch.cuda.synchronize()
            inside = int(first.elapsed_time(last) * 1e6)
        else:
            start = time.perf_counter_ns()
            with torch.no_grad():
                for slot in self.slots:
                    outputs.append(self.model(*slot))
            inside = time.perf_counter_ns() - start
        self.kept = outputs
        return inside

    def run(self, message):
        """The calls, and where each output lies."""
        self.prepare(message)
        before = self.allocated()
        inside = self.call()
        if len(self.slots) == 1:  # of several calls it would be more, and not the same for both sides
            self.beside = max(self.beside, self.allocated(most=True) - before)
        describe = lambda tensor: memory.describe(tensor, self.arena)  # noqa: E731
        outputs = [wire.encode(output, describe) for output in self.kept]
        return {"inside_ns": inside, "outputs": outputs, "addresses": memory.addresses(self.kept)}

    def run_first(self, message):
        """The same, of a model that was not called yet: what Triton compiles, it compiles aside from the device."""
        with self.aside.allowed():
            return self.run(message)

    def allocated(self, most=False):
        """Bytes of the GPU that torch gives out now, or gave at most since this was last asked."""
        return scatter.allocated(most) if self.marks else 0

    def go(self, nonce):
        """The calls, answered in few bytes: the nonce, the time, and the address of each output."""
        inside = self.call()
        found = memory.addresses(self.kept)
        return struct.pack(f"<B{2 + len(found)}Q", wire.WENT, nonce, inside, *found)

    def trace(self, _):
        import tracing

        self.seed_everything()
        with torch.no_grad():
            return {"launches": tracing.launches(lambda: self.model(*self.inputs[0]), self.device)}

    def prepare_counters(self, message):
        """Warms up, and finds out what a call launches; where there is no model, a launch of its own stands for one."""
        import counters

        self.counted = None
        model, given = (self.model, self.inputs[0]) if self.model is not None else (torch.Tensor.zero_, [self.probe])
        self.seed_everything()

        def prepare():
            self.counted = counters.OfCall(self.device, message["names"], model, given)
            return "ready"

        return counters.told(prepare)

    def read_counters(self, _):
        import counters

        def read():
            self.table = self.counted.read()
            return self.part_of_table()

        return counters.told(read)

    def more_counters(self, _):
        return {"counted": self.part_of_table()}

    def part_of_table(self):
        """As much as a message holds, however it is escaped; nothing at its end."""
        part, self.table = self.table[:PART], self.table[PART:]
        return {"table": part}

    def release_outputs(self, _):
        self.kept = []
        return {}

    def trim_memory(self, message):
        """Gives back what it holds of the device beside its model, and where nobody asks it to run soon, that and the inputs
        too."""
        self.kept, self.slots, self.places, self.counted = [], [], None, None
        if message["all"]:
            self.model, self.inputs, self.arena = None, [], None
        return memory.given_back(self.device, message["all"])

    def seed_everything(self):
        torch.manual_seed(self.seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(self.seed)


def answer(work, nonce):
    try:
        result = work()
    except BaseException as error:  # whatever a candidate raises is its answer
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        kind = f"{type(error).__name__}: {error}"
        result = {"raised": {"error": ends(kind, 2000), "traceback": ends(text, 12000), "memory": memory.is_short(error)}}
    if isinstance(result, dict):
        result["nonce"] = nonce
    return result


def ends(text, most):
    """A long text's beginning, which says what it is, and its end, which says where it went wrong."""
    return text if len(text) <= most else text[: most // 4] + " [...] " + text[-3 * most // 4 :]


def main():
    line = wire.Line(int(sys.argv[1]))
    setup = line.hear()
    if setup["device"] != "cpu":
        import_usual()
    line.say({"imported": True})
    line.hear()
    runner = Runner(setup, line)
    line.say({"ready": torch.__version__})
    message = line.hear()
    while message is not None:
        if isinstance(message, int):
            line.say(answer(lambda: runner.go(message), message))
        else:
            line.say(answer(lambda: getattr(runner, message["do"])(message), message["nonce"]))
        prepared = not isinstance(message, int) and message["do"] == "prepare"
        message = line.hear_at_once() if prepared else line.hear()


if __name__ == "__main__":
    main()
