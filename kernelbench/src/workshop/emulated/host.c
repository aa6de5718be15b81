// Calls a kernel on arguments that lie in a file, each call on arguments of its own, and writes them back: what an
// emulator runs. ARGUMENTS begins with a page of 64-bit numbers: how many arguments there are, the bytes of a slot, how
// many slots, and for each argument whether it is an array and its offset in the slot, or its bits. The slots follow.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int warpsmith_call(void *const *arguments, void *stream);

enum { PAGE = 4096, MOST = 128 };

static int failed(const char *what) {
    fprintf(stderr, "%s\n", what);
    return 120;
}

int main(int count, char **words) {
    if (count != 4) return failed("expected ARGUMENTS LEFT CALLS");
    static uint64_t head[PAGE / 8];
    FILE *file = fopen(words[1], "rb");
    if (!file || fread(head, PAGE, 1, file) != 1) return failed("cannot read the arguments");
    const uint64_t arguments = head[0], slot_bytes = head[1], slots = head[2], calls = strtoull(words[3], 0, 10);
    if (arguments > MOST || calls > slots) return failed("too many arguments or calls");
    unsigned char *memory = aligned_alloc(PAGE, slots * slot_bytes + PAGE);
    if (!memory || fread(memory, slot_bytes, slots, file) != slots) return failed("cannot hold the arguments");
    fclose(file);
    for (uint64_t call = 0; call < calls; ++call) {
        void *pointers[MOST];
        for (uint64_t at = 0; at < arguments; ++at) {
            uint64_t *argument = head + 3 + 2 * at;
            pointers[at] = argument[0] ? (void *)(memory + call * slot_bytes + argument[1]) : (void *)&argument[1];
        }
        if (warpsmith_call(pointers, 0)) return failed("the entry returned a status that is not 0");
    }
    file = fopen(words[2], "wb");
    if (!file || fwrite(memory, slot_bytes, slots, file) != slots || fclose(file)) return failed("cannot write");
    return 0;
}
