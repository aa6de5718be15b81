// A library with the names of CUDA's driver, whose GPU is the processor: memory is shared memory, a kernel is a function,
// an event is a time. With it the workshop for CUDA runs from end to end where there is no GPU. It claims nothing about
// one: no times, and no faults that only a GPU has.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned long long u64;
enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };
static const u64 ALL = 64ull << 30;

struct Stretch { std::string name; size_t bytes; };
static std::map<u64, Stretch> &stretches() { static std::map<u64, Stretch> all; return all; }
static u64 taken = 0;

static u64 mapped(const char *name, size_t bytes, int flags) {
    const int file = shm_open(name, flags, 0666);
    if (file < 0) return 0;
    fchmod(file, 0666);
    if ((flags & O_CREAT) && ftruncate(file, (off_t)bytes) != 0) return 0;
    struct stat about;
    fstat(file, &about);
    void *at = mmap(nullptr, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? 0 : (u64)at;
}

struct Tidy { ~Tidy() { for (auto &one : stretches()) shm_unlink(one.second.name.c_str()); } } tidy;

struct Event { u64 ns; };
struct Function { std::string name; void *code; void (*at)(u64, u64); };

extern "C" {
int cuInit(unsigned) { return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal == 0 ? SUCCESS : INVALID; }
int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int) { *context = (void *)1; return SUCCESS; }
int cuCtxSetCurrent(void *) { return SUCCESS; }
int cuStreamCreate(void **stream, unsigned) { *stream = (void *)1; return SUCCESS; }
int cuDeviceGetName(char *name, int length, int) { snprintf(name, (size_t)length, "the processor, pretending"); return SUCCESS; }
int cuDeviceGetAttribute(int *value, int which, int) {
    *value = which == 75 ? 9 : which == 76 ? 0 : which == 38 ? 1 << 20 : 4;
    return SUCCESS;
}
int cuMemGetInfo_v2(size_t *free, size_t *all) { *all = ALL; *free = ALL - taken; return SUCCESS; }
int cuMemAlloc_v2(u64 *address, size_t bytes) {
    static int count = 0;
    if (bytes > ALL - taken) return OUT_OF_MEMORY;
    const std::string name = "/pretend-" + std::to_string(getpid()) + "-" + std::to_string(count++);
    *address = mapped(name.c_str(), bytes, O_CREAT | O_RDWR);
    if (!*address) return OUT_OF_MEMORY;
    stretches()[*address] = {name, bytes};
    taken += bytes;
    return SUCCESS;
}
int cuMemFree_v2(u64 address) {
    auto found = stretches().find(address);
    if (found == stretches().end()) return INVALID;
    shm_unlink(found->second.name.c_str());
    munmap((void *)address, found->second.bytes);
    taken -= found->second.bytes;
    stretches().erase(found);
    return SUCCESS;
}
struct Handle { char text[64]; };
int cuIpcGetMemHandle(Handle *handle, u64 address) {
    auto found = stretches().find(address);
    if (found == stretches().end()) return INVALID;
    memset(handle, 0, sizeof *handle);
    strncpy(handle->text, found->second.name.c_str(), sizeof handle->text - 1);
    return SUCCESS;
}
int cuIpcOpenMemHandle_v2(u64 *address, Handle handle, unsigned) {
    *address = mapped(handle.text, 0, O_RDWR);
    return *address ? SUCCESS : INVALID;
}
int cuMemcpyDtoH_v2(void *to, u64 from, size_t bytes) { memcpy(to, (void *)from, bytes); return SUCCESS; }
int cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) { memcpy((void *)to, from, bytes); return SUCCESS; }
// A copy takes no time by the events around it: bandwidth is boundless here, and no time impossible.
static bool copied = false;
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void *) {
    memcpy((void *)to, (void *)from, bytes);
    copied = true;
    return SUCCESS;
}
int cuMemsetD8Async(u64 at, unsigned char value, size_t bytes, void *) { memset((void *)at, value, bytes); return SUCCESS; }
// A module in PTX holds the workshop's own two kernels: one that keeps the GPU busy, and one that does nothing.
static char ptx;
int cuModuleLoadData(void **module, const void *image) {
    if (strncmp((const char *)image, ".version", 8) == 0) {
        *module = &ptx;
        return SUCCESS;
    }
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    if (memcmp(image, ELFMAG, SELFMAG) != 0) return INVALID;
    const size_t bytes = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    char path[] = "/tmp/pretend-module-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0 || write(file, image, bytes) != (ssize_t)bytes) return INVALID;
    close(file);
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    return *module ? SUCCESS : INVALID;
}
int cuModuleGetFunction(Function **function, void *module, const char *name) {
    if (module == &ptx) {
        *function = new Function{name, nullptr, nullptr};
        return SUCCESS;
    }
    *function = new Function{name, dlsym(module, name), (void (*)(u64, u64))dlsym(module, "pretend_at")};
    return (*function)->code && (*function)->at ? SUCCESS : NOT_FOUND;
}
int cuLaunchKernel(Function *function, unsigned, unsigned slots, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                   void **arguments, void **) {
    // Nobody else is kept from working meanwhile, so it is over before anybody is asked to.
    if (!function->code) {
        const timespec length = {0, function->name == "warpsmith_busy" ? (long)*(u64 *)arguments[0] : 0};
        nanosleep(&length, nullptr);
        return SUCCESS;
    }
    u64 a[10];
    double d[10];
    const size_t count = function->name == "inputs" ? 10 : function->name == "compare" ? 8 : 6;
    for (size_t i = 0; i < count; ++i) {
        memcpy(&a[i], arguments[i], 8);
        memcpy(&d[i], arguments[i], 8);
    }
    for (unsigned slot = 0; slot < slots; ++slot) {
        function->at(slot, slots);
        if (function->name == "inputs") {
            ((void (*)(u64, u64, u64, u64, u64, double, double, double, u64, u64))function->code)(
                a[0], a[1], a[2], a[3], a[4], d[5], d[6], d[7], a[8], a[9]);
        } else if (function->name == "compare") {
            ((void (*)(u64, u64, u64, u64, u64, double, double, u64))function->code)(a[0], a[1], a[2], a[3], a[4], d[5],
                                                                                    d[6], a[7]);
        } else {
            ((void (*)(u64, u64, u64, u64, u64, u64))function->code)(a[0], a[1], a[2], a[3], a[4], a[5]);
        }
    }
    return SUCCESS;
}
int cuCtxSynchronize() { return SUCCESS; }
int cuEventCreate(Event **event, unsigned) { *event = new Event{0}; return SUCCESS; }
int cuEventRecord(Event *event, void *) {
    static u64 last = 0;
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    last = event->ns = copied ? last + 1 : (u64)now.tv_sec * 1000000000ull + (u64)now.tv_nsec;
    copied = false;
    return SUCCESS;
}
int cuEventQuery(Event *) { return SUCCESS; }
int cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *end) {
    *milliseconds = (float)(end->ns - start->ns) / 1e6f;
    return SUCCESS;
}
// Calls cannot be recorded here: a kernel is a loop that nobody launches. That only comes out at the end, and whoever is called
// meanwhile can see that it is recorded.
int cuStreamBeginCapture_v2(void *, int) { return setenv("PRETEND_RECORDS", "1", 1); }
int cuStreamEndCapture(void *, void **) { return unsetenv("PRETEND_RECORDS"), 801; }
int cuProfilerStart() { return SUCCESS; }
int cuProfilerStop() { return SUCCESS; }
int cuGetErrorName(int code, const char **text) { *text = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR"; return SUCCESS; }
int cuGetErrorString(int code, const char **text) { *text = code == OUT_OF_MEMORY ? "out of memory" : "it did not work"; return SUCCESS; }
}
