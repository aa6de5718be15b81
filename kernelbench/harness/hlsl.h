// What the host region of a kernel in HLSL has beside the standard library: arrays on the device, whose contents are
// not to be had here, and the dispatch of a shader.
#include <stddef.h>
#include <stdint.h>
#include <initializer_list>
#include <type_traits>

struct ws_contents;
// An array on the device.
typedef ws_contents* ws_buffer;

// The thread groups of a dispatch in x, y and z.
struct ws_groups {
  uint64_t count[3];
  template <typename X, typename Y = int, typename Z = int>
  ws_groups(X x, Y y = 1, Z z = 1) : count{(uint64_t)x, (uint64_t)y, (uint64_t)z} {}
};

// Four bytes of a shader's constants: a float, or an integer of 32 bits.
struct ws_constant {
  uint32_t bits;
  template <typename Number>
  ws_constant(Number number) {
    if constexpr (std::is_floating_point<Number>::value) {
      const float value = (float)number;
      __builtin_memcpy(&bits, &value, sizeof bits);
    } else {
      bits = (uint32_t)number;
    }
  }
};

// A shader of the device region, compiled; the last has no name.
struct ws_shader {
  const char* name;
  const uint32_t* code;
  size_t bytes;
};
extern "C" const ws_shader ws_shaders[];

struct ws_device {
  void (*dispatch)(ws_device*, const ws_shader*, const char*, const uint64_t*, const ws_buffer*, size_t,
                   const uint32_t*, size_t);
};

// Has the device run a shader in so many thread groups, after all that it was asked for before. The buffers are those
// of the bindings 0, 1, 2 and so on, the constants those of [[vk::push_constant]], in their order.
static inline void ws_dispatch(ws_device* device, const char* shader, ws_groups groups,
                               std::initializer_list<ws_buffer> buffers,
                               std::initializer_list<ws_constant> constants = {}) {
  const ws_shader* found = ws_shaders;
  while (found->name != nullptr && __builtin_strcmp(found->name, shader) != 0) ++found;
  device->dispatch(device, found, shader, groups.count, buffers.begin(), buffers.size(),
                   reinterpret_cast<const uint32_t*>(constants.begin()), constants.size());
}
