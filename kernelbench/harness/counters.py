"""What do hardware counters say of each kernel of a call? CUPTI's range profiler reads them, with no profiler around the process.

The metrics need several passes. The call is replayed as a whole, once a pass, and each launch is a range of its own: what is
programmed into the GPU is programmed once a pass, not once a launch, and nothing is saved and restored around a launch. What is
read is written down as Nsight Compute prints its table (`ncu --csv --page raw`): metrics have the same names, for both stand on the
same library. What follows from how a kernel was launched is computed here.
"""

import ctypes
import math

import torch

MOST_LAUNCHES = 512
WARM_UP = 3
CACHES = 2  # as often as the L2 cache holds is written before each pass
DRIVER_API = 1  # CUPTI_CB_DOMAIN_DRIVER_API
RANGE_PROFILER, AUTO_RANGE, USER_REPLAY = 0, 1, 3
IDENTITY = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC"]
WARP = 32
REGISTERS_AT_ONCE = 256  # allocated a warp, and from one of four files
SHARED_AT_ONCE = 128
# CUdevice_attribute and CUfunction_attribute
SM_COUNT, MOST_THREADS, MOST_SHARED, MOST_REGISTERS, MOST_BLOCKS, SHARED_OF_DRIVER = 16, 39, 81, 82, 106, 111
STATIC_SHARED, REGISTERS = 1, 4

UNITS_OF_LAUNCH = {
    "launch__occupancy_limit": "block",
    "launch__registers_per_thread": "register/thread",
    "launch__shared_mem_per_block": "byte/block",
    "launch__thread_count": "thread",
    "launch__": "",
}

SIZE, POINTER, TEXT, INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
TEXTS = ctypes.POINTER(TEXT)


class Unavailable(Exception):
    """The counters cannot be had here, whatever is to be read."""


class NotByRange(Exception):
    """This call cannot be read launch by launch."""


def parameters(*fields):
    """A structure as CUPTI's functions take it: its size up to the last field, nothing, and the fields."""
    fields = [("structSize", SIZE), ("pPriv", POINTER), *fields]
    kind = type("Parameters", (ctypes.Structure,), {"_fields_": fields})
    last, its_type = fields[-1]
    kind.size = getattr(kind, last).offset + ctypes.sizeof(its_type)
    return kind


HOST, RANGES = ("pHostObject", POINTER), ("pRangeProfilerObject", POINTER)
DATA = [("pCounterDataImage", POINTER), ("counterDataImageSize", SIZE)]
METRICS = [("ppMetricNames", TEXTS), ("numMetrics", SIZE)]
# cupti_profiler_host.h and cupti_range_profiler.h of CUDA 12.6 and later
FUNCTIONS = {
    "cuptiProfilerInitialize": parameters(),
    "cuptiDeviceGetChipName": parameters(("deviceIndex", SIZE), ("pChipName", TEXT)),
    "cuptiProfilerHostInitialize": parameters(("profilerType", INT), ("pChipName", TEXT), ("available", POINTER), HOST),
    "cuptiProfilerHostDeinitialize": parameters(HOST),
    "cuptiProfilerHostConfigAddMetrics": parameters(HOST, *METRICS),
    "cuptiProfilerHostGetConfigImageSize": parameters(HOST, ("configImageSize", SIZE)),
    "cuptiProfilerHostGetConfigImage": parameters(HOST, ("configImageSize", SIZE), ("pConfigImage", POINTER)),
    "cuptiProfilerHostGetNumOfPasses": parameters(
        ("configImageSize", SIZE), ("pConfigImage", POINTER), ("numOfPasses", SIZE)
    ),
    "cuptiProfilerHostEvaluateToGpuValues": parameters(
        HOST, *DATA, ("rangeIndex", SIZE), *METRICS, ("pMetricValues", ctypes.POINTER(ctypes.c_double))
    ),
    "cuptiRangeProfilerEnable": parameters(("ctx", POINTER), RANGES),
    "cuptiRangeProfilerDisable": parameters(RANGES),
    "cuptiRangeProfilerGetCounterDataSize": parameters(
        RANGES, *METRICS, ("maxNumOfRanges", SIZE), ("maxNumRangeTreeNodes", ctypes.c_uint32), ("counterDataSize", SIZE)
    ),
    "cuptiRangeProfilerCounterDataImageInitialize": parameters(
        RANGES, ("counterDataSize", SIZE), ("pCounterData", POINTER)
    ),
    "cuptiRangeProfilerSetConfig": parameters(
        RANGES,
        ("configSize", SIZE),
        ("pConfig", POINTER),
        ("counterDataImageSize", SIZE),
        ("pCounterDataImage", POINTER),
        ("range", INT),
        ("replayMode", INT),
        ("maxRangesPerPass", SIZE),
        ("numNestingLevels", ctypes.c_uint16),
        ("minNestingLevel", ctypes.c_uint16),
        ("passIndex", SIZE),
        ("targetNestingLevel", ctypes.c_uint16),
    ),
    "cuptiRangeProfilerStart": parameters(RANGES),
    "cuptiRangeProfilerStop": parameters(
        RANGES, ("passIndex", SIZE), ("targetNestingLevel", SIZE), ("isAllPassSubmitted", ctypes.c_uint8)
    ),
    "cuptiRangeProfilerDecodeData": parameters(RANGES, ("numOfRangeDropped", SIZE)),
    "cuptiRangeProfilerGetCounterDataInfo": parameters(*DATA, ("numTotalRanges", SIZE)),
}


class Called(ctypes.Structure):
    """CUpti_CallbackData, as far as it is read."""

    _fields_ = [("site", INT), ("function", TEXT), ("parameters", POINTER), ("returned", POINTER), ("symbol", TEXT)]


class Shape(ctypes.Structure):
    """How CUlaunchConfig begins, and behind the function the parameters of cuLaunchKernel."""

    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint)]


class LaunchKernel(ctypes.Structure):
    """cuLaunchKernel_params and cuLaunchCooperativeKernel_params, as far as they are read."""

    _fields_ = [("function", POINTER), ("shape", Shape)]


class LaunchKernelEx(ctypes.Structure):
    """cuLaunchKernelEx_params, as far as they are read."""

    _fields_ = [("config", ctypes.POINTER(Shape)), ("function", POINTER)]


CALLBACK = ctypes.CFUNCTYPE(None, POINTER, INT, ctypes.c_uint32, ctypes.POINTER(Called))


def loaded_library():
    """CUPTI as torch has loaded it."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = sorted({line.split()[-1] for line in maps if "/libcupti.so" in line})
    if not found:
        raise Unavailable("torch has loaded no CUPTI")
    return ctypes.CDLL(found[0])


class Cupti:
    """Its functions, each with its structure, and an error where one fails."""

    def __init__(self):
        self.library = loaded_library()
        missing = [name for name in FUNCTIONS if not hasattr(self.library, name)]
        if missing:
            raise Unavailable(f"CUPTI has no {missing[0]}: CUDA 12.6 and later have a range profiler")

    def __call__(self, name, **fields):
        kind = FUNCTIONS[name]
        told = kind(structSize=kind.size, **fields)
        self.check(name, getattr(self.library, name)(ctypes.byref(told)))
        return told

    def check(self, name, result):
        if result:
            said = TEXT()
            self.library.cuptiGetResultString(result, ctypes.byref(said))
            raise Unavailable(f"{name}: {(said.value or b'?').decode()}")


def texts(names):
    return (TEXT * len(names))(*[name.encode() for name in names])


class Launch:
    """One launch: its kernel's name, the handle of its function, grid, block, and dynamic shared memory in bytes."""

    def __init__(self, symbol, function, shape):
        self.symbol, self.function = symbol, function
        self.grid, self.block, self.dynamic = list(shape.grid), list(shape.block), shape.shared


class Counters:
    """The metrics of these names that this GPU has, of every launch of a call."""

    def __init__(self, device, names):
        self.device = device
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.cupti = Cupti()
        self.cupti("cuptiProfilerInitialize")
        self.chip = self.cupti("cuptiDeviceGetChipName", deviceIndex=self.ordinal()).pChipName
        self.of_launch = [name for name in names if name.startswith("launch__")]
        others = [name for name in names if name not in self.of_launch]
        self.names = others if self.has(others) else [name for name in others if self.has([name])]
        if not self.names:
            raise Unavailable(f"CUPTI has none of these metrics for {self.chip.decode()}")
        self.host = self.host_object()
        self.cupti("cuptiProfilerHostConfigAddMetrics", pHostObject=self.host, **self.metrics())
        size = self.cupti("cuptiProfilerHostGetConfigImageSize", pHostObject=self.host).configImageSize
        self.config = (ctypes.c_uint8 * size)()
        config = {"configImageSize": size, "pConfigImage": ctypes.addressof(self.config)}
        self.cupti("cuptiProfilerHostGetConfigImage", pHostObject=self.host, **config)
        self.passes = self.cupti("cuptiProfilerHostGetNumOfPasses", **config).numOfPasses
        self.rows = []

    def ordinal(self):
        return torch.cuda.current_device()

    def metrics(self):
        return {"ppMetricNames": texts(self.names), "numMetrics": len(self.names)}

    def host_object(self):
        return self.cupti("cuptiProfilerHostInitialize", profilerType=RANGE_PROFILER, pChipName=self.chip).pHostObject

    def has(self, names):
        host = self.host_object()
        told = {"ppMetricNames": texts(names), "numMetrics": len(names)}
        try:
            self.cupti("cuptiProfilerHostConfigAddMetrics", pHostObject=host, **told)
        except Unavailable:
            return False
        finally:
            self.cupti("cuptiProfilerHostDeinitialize", pHostObject=host)
        return True

    def launches_of(self, call):
        """What one call launches, in order."""
        seen, whole = [], []

        def note(_user, _domain, _id, called):
            called = called.contents
            if called.site:  # at its end
                return
            function = called.function.decode().removesuffix("_ptsz")
            if function in ("cuLaunchKernel", "cuLaunchCooperativeKernel"):
                told = ctypes.cast(called.parameters, ctypes.POINTER(LaunchKernel)).contents
                seen.append(Launch(called.symbol, told.function, told.shape))
            elif function == "cuLaunchKernelEx":
                told = ctypes.cast(called.parameters, ctypes.POINTER(LaunchKernelEx)).contents
                seen.append(Launch(called.symbol, told.function, told.config.contents))
            elif function == "cuGraphLaunch":
                whole.append(function)

        callback, subscriber, library = CALLBACK(note), POINTER(), self.cupti.library
        self.cupti.check("cuptiSubscribe", library.cuptiSubscribe(ctypes.byref(subscriber), callback, None))
        try:
            enabled = library.cuptiEnableDomain(ctypes.c_uint32(1), subscriber, INT(DRIVER_API))
            self.cupti.check("cuptiEnableDomain", enabled)
            call()
            torch.cuda.synchronize()
        finally:
            library.cuptiUnsubscribe(subscriber)
        if whole:
            raise NotByRange("it launches a CUDA graph, whose kernels are no ranges of their own")
        if len(seen) > MOST_LAUNCHES:
            raise NotByRange(f"it makes {len(seen)} launches, and {MOST_LAUNCHES} are read at most")
        if not seen:
            raise NotByRange("no launch of it was seen")
        return seen

    def read(self, launches, call, before):
        """Reads every launch of the call, which is made once a pass, and `before` ahead of each.

        The counters are held meanwhile and no longer: whoever holds them keeps others out, and a second reading by the same hold
        reads as many launches as the first.
        """
        context = POINTER()
        self.driver.cuCtxGetCurrent(ctypes.byref(context))
        ranges = self.cupti("cuptiRangeProfilerEnable", ctx=context.value).pRangeProfilerObject
        try:
            self.rows += zip(launches, self.values(ranges, launches, call, before), strict=True)
        finally:
            self.cupti("cuptiRangeProfilerDisable", pRangeProfilerObject=ranges)

    def values(self, ranges, launches, call, before):
        ours = {"pRangeProfilerObject": ranges}
        self.data = image = self.image(ours, len(launches))  # lives until the counters are given back
        data = {"pCounterDataImage": ctypes.addressof(image), "counterDataImageSize": len(image)}
        self.cupti(
            "cuptiRangeProfilerSetConfig",
            configSize=len(self.config),
            pConfig=ctypes.addressof(self.config),
            range=AUTO_RANGE,
            replayMode=USER_REPLAY,
            maxRangesPerPass=len(launches),
            numNestingLevels=1,
            minNestingLevel=1,
            targetNestingLevel=1,
            **ours,
            **data,
        )
        for _ in range(2 * self.passes):
            before()
            torch.cuda.synchronize()
            self.cupti("cuptiRangeProfilerStart", **ours)
            call()
            torch.cuda.synchronize()
            if self.cupti("cuptiRangeProfilerStop", **ours).isAllPassSubmitted:
                break
        else:
            raise NotByRange(f"{2 * self.passes} calls were not enough for {self.passes} passes")
        dropped = self.cupti("cuptiRangeProfilerDecodeData", **ours).numOfRangeDropped
        found = self.cupti("cuptiRangeProfilerGetCounterDataInfo", **data).numTotalRanges
        if dropped or found != len(launches):
            raise NotByRange(f"{found + dropped} launches were read, and a call made {len(launches)} before")
        return [self.evaluated(at, data) for at in range(found)]

    def image(self, ours, launches):
        """Where so many launches' counters will lie."""
        most = {"maxNumOfRanges": launches, "maxNumRangeTreeNodes": launches}
        size = self.cupti("cuptiRangeProfilerGetCounterDataSize", **ours, **self.metrics(), **most).counterDataSize
        image = (ctypes.c_uint8 * size)()
        into = {"counterDataSize": size, "pCounterData": ctypes.addressof(image)}
        self.cupti("cuptiRangeProfilerCounterDataImageInitialize", **ours, **into)
        return image

    def evaluated(self, at, data):
        """The metrics of one launch."""
        values = (ctypes.c_double * len(self.names))()
        into = {"rangeIndex": at, "pMetricValues": values, **self.metrics()}
        self.cupti("cuptiProfilerHostEvaluateToGpuValues", pHostObject=self.host, **into, **data)
        return list(values)

    def table(self):
        """All that was read so far, as Nsight Compute prints its raw page, in base units."""
        capability = "{}.{}".format(*torch.cuda.get_device_capability(self.device))
        rows = [[*IDENTITY, *self.of_launch, *self.names]]
        rows.append(["" for _ in IDENTITY] + [unit(name) for name in rows[0][len(IDENTITY) :]])
        for at, (launch, values) in enumerate(self.rows):
            shape = [f"({', '.join(map(str, three))})" for three in (launch.block, launch.grid)]
            facts = self.facts(launch)
            of_launch = [facts.get(name, "n/a") for name in self.of_launch]
            rows.append([at, 0, demangled(launch.symbol), *shape, capability, *of_launch, *map(repr, values)])
        return "\n".join(",".join(quoted(cell) for cell in row) for row in rows)

    def facts(self, launch):
        """What follows from how a kernel was launched: occupancy is limited by whichever allows the fewest blocks.

        Registers are allocated to a warp in units of 256 from one of four files a multiprocessor, shared memory to a block in units
        of 128 bytes, of which the driver has some (CUDA C++ Programming Guide, compute capabilities; measured against Nsight Compute).
        """
        device = self.attribute
        threads = math.prod(launch.block)
        warps = math.ceil(threads / WARP)
        registers, static = self.of_function(launch, REGISTERS), self.of_function(launch, STATIC_SHARED)
        shared = device(SHARED_OF_DRIVER) + static + launch.dynamic
        of_warp = math.ceil(registers * WARP / REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
        of_block = math.ceil(shared / SHARED_AT_ONCE) * SHARED_AT_ONCE
        blocks = device(MOST_BLOCKS)
        limits = {
            "blocks": blocks,
            "warps": device(MOST_THREADS) // WARP // warps,
            "registers": 4 * (device(MOST_REGISTERS) // 4 // of_warp) // warps if of_warp else blocks,
            "shared_mem": min(blocks, device(MOST_SHARED) // of_block) if of_block else blocks,
        }
        facts = {f"launch__occupancy_limit_{name}": limit for name, limit in limits.items()}
        at_once = device(SM_COUNT) * min(limits.values())
        return facts | {
            "launch__registers_per_thread": registers,
            "launch__shared_mem_per_block": shared,
            "launch__shared_mem_per_block_driver": device(SHARED_OF_DRIVER),
            "launch__shared_mem_per_block_dynamic": launch.dynamic,
            "launch__shared_mem_per_block_static": static,
            "launch__block_size": threads,
            "launch__grid_size": math.prod(launch.grid),
            "launch__thread_count": threads * math.prod(launch.grid),
            "launch__sm_count": device(SM_COUNT),
            "launch__waves_per_multiprocessor": math.prod(launch.grid) / at_once if at_once else "n/a",
        }

    def attribute(self, which):
        value = INT()
        self.driver.cuDeviceGetAttribute(ctypes.byref(value), INT(which), INT(self.ordinal()))
        return value.value

    def of_function(self, launch, which):
        value, function = INT(), POINTER(launch.function)
        if self.driver.cuFuncGetAttribute(ctypes.byref(value), INT(which), function):
            # A kernel of a library that is not loaded into a context of its own.
            self.driver.cuKernelGetAttribute(ctypes.byref(value), INT(which), function, INT(self.ordinal()))
        return value.value


class OfCall:
    """The counters of every launch of one call: on copies of its inputs, which are as they were before each pass, as the L2 cache
    is cold."""

    def __init__(self, device, names, model, given):
        self.counters = Counters(device, names)
        self.model, self.given = model, given
        self.inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in given]
        for _ in range(WARM_UP):
            self.call()
        torch.cuda.synchronize()
        self.launches = self.counters.launches_of(self.call)
        holds = torch.cuda.get_device_properties(device).L2_cache_size
        self.cold = torch.empty(CACHES * holds, dtype=torch.uint8, device=device)

    def call(self):
        self.model(*self.inputs)

    def renew(self):
        for ours, original in zip(self.inputs, self.given, strict=True):
            if isinstance(ours, torch.Tensor):
                ours.copy_(original)
        self.cold.zero_()

    def read(self):
        self.counters.read(self.launches, self.call, self.renew)
        return self.counters.table()


def told(work):
    """What comes of it, or why nothing does, as an answer."""
    try:
        with torch.no_grad():
            return {"counted": work()}
    except NotByRange as why:
        return {"counted": {"not_by_range": str(why)}}
    except (Unavailable, OSError) as why:
        return {"counted": {"unavailable": str(why)}}


def unit(name):
    """The unit of a metric, as Nsight Compute writes it."""
    base, _, kind = name.partition(".")
    for begins, of in UNITS_OF_LAUNCH.items():
        if base.startswith(begins):
            return of
    if "pct" in kind:
        return "%"
    if base == "gpu__time_duration":
        return "ns"
    words = base.split("__")[-1].split("_")
    of = next((word for word in ("byte", "cycle", "inst", "sector") if word in words or f"{word}s" in words), "")
    return f"{of}/s" if of and "per_second" in kind else of


def quoted(cell):
    return '"' + str(cell).replace('"', '""') + '"'


def demangled(symbol):
    """A kernel's name as its source writes it."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return (symbol or b"?").decode()
    demangle.restype, demangle.argtypes = POINTER, [TEXT, POINTER, POINTER, POINTER]
    text = demangle(symbol, None, None, None)
    return (ctypes.cast(text, TEXT).value if text else symbol or b"?").decode(errors="replace")
