// Which types can an element have?
#pragma once

#ifdef __CUDACC__
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_WARP_SIZE 32
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define C10_HOST __host__
#else
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#endif

struct __half;
struct __nv_bfloat16;

namespace slim {

template <class To, class From>
C10_HOST_DEVICE inline To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "of one size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

C10_HOST_DEVICE inline float half_to_float(uint16_t half) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
  return wide;
#else
  const uint32_t rest = half & 0x7fffu, sign = (half & 0x8000u) << 16;
  const float wide = bits<float>(rest << 13) * 0x1p112f;
  const uint32_t special = rest >= 0x7c00u ? 0x7f800000u : 0;
  return bits<float>(bits<uint32_t>(wide) | special | sign);
#endif
}

C10_HOST_DEVICE inline uint16_t float_to_half(float wide) {
#ifdef __CUDA_ARCH__
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(wide));
  return half;
#else
  const uint32_t all = bits<uint32_t>(wide), rest = all & 0x7fffffffu, sign = (all >> 16) & 0x8000u;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (rest < 0x38800000u) return static_cast<uint16_t>(sign | (bits<uint32_t>(bits<float>(rest) + 0.5f) - 0x3f000000u));
  return static_cast<uint16_t>(sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1)) >> 13));
#endif
}

C10_HOST_DEVICE inline float bfloat_to_float(uint16_t narrow) { return bits<float>(static_cast<uint32_t>(narrow) << 16); }

C10_HOST_DEVICE inline uint16_t float_to_bfloat(float wide) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(wide));
  return narrow;
#else
  const uint32_t all = bits<uint32_t>(wide);
  if ((all & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return static_cast<uint16_t>((all + 0x7fffu + ((all >> 16) & 1)) >> 16);
#endif
}

}  // namespace slim

namespace c10 {

struct alignas(2) Half {
  uint16_t x;
  struct from_bits_t {};
  static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return from_bits_t(); }
  Half() = default;
  constexpr C10_HOST_DEVICE Half(uint16_t bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE Half(float value) : x(slim::float_to_half(value)) {}
  C10_HOST_DEVICE operator float() const { return slim::half_to_float(x); }
  template <class T, class = std::enable_if_t<std::is_same<T, __half>::value>>
  C10_HOST_DEVICE Half(const T& value) : x(slim::bits<uint16_t>(value)) {}
  template <class T, class = std::enable_if_t<std::is_same<T, __half>::value>>
  C10_HOST_DEVICE operator T() const { return slim::bits<T>(x); }
};

struct alignas(2) BFloat16 {
  uint16_t x;
  struct from_bits_t {};
  static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return from_bits_t(); }
  BFloat16() = default;
  constexpr C10_HOST_DEVICE BFloat16(uint16_t bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE BFloat16(float value) : x(slim::float_to_bfloat(value)) {}
  C10_HOST_DEVICE operator float() const { return slim::bfloat_to_float(x); }
  template <class T, class = std::enable_if_t<std::is_same<T, __nv_bfloat16>::value>>
  C10_HOST_DEVICE BFloat16(const T& value) : x(slim::bits<uint16_t>(value)) {}
  template <class T, class = std::enable_if_t<std::is_same<T, __nv_bfloat16>::value>>
  C10_HOST_DEVICE explicit operator T() const { return slim::bits<T>(x); }
};

// Elements of eight bits are stored here, and handed on: what converts them is CUDA's own, or torch's headers.
#define SLIM_STORED(N)                                                        \
  struct alignas(1) N {                                                       \
    uint8_t x;                                                                \
    struct from_bits_t {};                                                    \
    static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return {}; }   \
    N() = default;                                                            \
    constexpr C10_HOST_DEVICE N(uint8_t bits, from_bits_t) : x(bits) {}       \
  };
SLIM_STORED(Float8_e5m2)
SLIM_STORED(Float8_e4m3fn)
#undef SLIM_STORED

// Arithmetic within a narrow type is done in float and rounded once; beside float or double the wider type stays.
#define SLIM_OPERATOR(N, op)                                                                                        \
  C10_HOST_DEVICE inline N operator op(const N& a, const N& b) { return static_cast<float>(a) op static_cast<float>(b); } \
  C10_HOST_DEVICE inline float operator op(const N& a, float b) { return static_cast<float>(a) op b; }              \
  C10_HOST_DEVICE inline float operator op(float a, const N& b) { return a op static_cast<float>(b); }              \
  C10_HOST_DEVICE inline double operator op(const N& a, double b) { return static_cast<double>(a) op b; }           \
  C10_HOST_DEVICE inline double operator op(double a, const N& b) { return a op static_cast<double>(b); }           \
  C10_HOST_DEVICE inline N operator op(const N& a, int b) { return a op N(static_cast<float>(b)); }                 \
  C10_HOST_DEVICE inline N operator op(int a, const N& b) { return N(static_cast<float>(a)) op b; }                 \
  C10_HOST_DEVICE inline N operator op(const N& a, int64_t b) { return a op N(static_cast<float>(b)); }             \
  C10_HOST_DEVICE inline N operator op(int64_t a, const N& b) { return N(static_cast<float>(a)) op b; }             \
  C10_HOST_DEVICE inline N& operator op##=(N& a, const N& b) { return a = a op b; }                                 \
  C10_HOST_DEVICE inline float& operator op##=(float& a, const N& b) { return a = a op static_cast<float>(b); }
#define SLIM_OPERATORS(N)  \
  SLIM_OPERATOR(N, +)      \
  SLIM_OPERATOR(N, -)      \
  SLIM_OPERATOR(N, *)      \
  SLIM_OPERATOR(N, /)      \
  C10_HOST_DEVICE inline N operator-(const N& a) { return N(static_cast<uint16_t>(a.x ^ 0x8000u), N::from_bits()); }
SLIM_OPERATORS(Half)
SLIM_OPERATORS(BFloat16)
#undef SLIM_OPERATORS
#undef SLIM_OPERATOR

// The numbers are torch's own, for candidates may write them down.
enum class ScalarType : int8_t {
  Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, Double = 7,
  ComplexHalf = 8, ComplexFloat = 9, ComplexDouble = 10, Bool = 11, BFloat16 = 15,
  Float8_e5m2 = 23, Float8_e4m3fn = 24, Undefined = 127,
};

// C++ type, name of the enumeration, name in Python.
#define SLIM_FORALL_TYPES(_)     \
  _(uint8_t, Byte, "uint8")      \
  _(int8_t, Char, "int8")        \
  _(int16_t, Short, "int16")     \
  _(int, Int, "int32")           \
  _(int64_t, Long, "int64")      \
  _(c10::Half, Half, "float16")  \
  _(float, Float, "float32")     \
  _(double, Double, "float64")   \
  _(bool, Bool, "bool")          \
  _(c10::BFloat16, BFloat16, "bfloat16") \
  _(c10::Float8_e5m2, Float8_e5m2, "float8_e5m2") \
  _(c10::Float8_e4m3fn, Float8_e4m3fn, "float8_e4m3fn")

#define SLIM_CONSTANT(type, name, python) constexpr ScalarType k##name = ScalarType::name;
SLIM_FORALL_TYPES(SLIM_CONSTANT)
#undef SLIM_CONSTANT

template <class T>
struct CppTypeToScalarType;
namespace impl {
template <ScalarType>
struct ScalarTypeToCPPType;
template <ScalarType S>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<S>::type;
}  // namespace impl
#define SLIM_MAP(T, name, python)                                     \
  template <>                                                         \
  struct CppTypeToScalarType<T> {                                     \
    static constexpr ScalarType value = ScalarType::name;             \
  };                                                                  \
  template <>                                                         \
  struct impl::ScalarTypeToCPPType<ScalarType::name> {                \
    using type = T;                                                   \
  };
SLIM_FORALL_TYPES(SLIM_MAP)
#undef SLIM_MAP

inline const char* toString(ScalarType type) {
  switch (type) {
#define SLIM_SAY(T, name, python) \
  case ScalarType::name:          \
    return #name;
    SLIM_FORALL_TYPES(SLIM_SAY)
#undef SLIM_SAY
    case ScalarType::ComplexHalf: return "ComplexHalf";
    case ScalarType::ComplexFloat: return "ComplexFloat";
    case ScalarType::ComplexDouble: return "ComplexDouble";
    default: return "Undefined";
  }
}

inline size_t elementSize(ScalarType type) {
  switch (type) {
#define SLIM_SIZE(T, name, python) \
  case ScalarType::name:           \
    return sizeof(T);
    SLIM_FORALL_TYPES(SLIM_SIZE)
#undef SLIM_SIZE
    case ScalarType::ComplexHalf: return 4;
    case ScalarType::ComplexFloat: return 8;
    case ScalarType::ComplexDouble: return 16;
    default: return 0;
  }
}

inline bool isFloatingType(ScalarType type) {
  return type == kHalf || type == kFloat || type == kDouble || type == kBFloat16 || type == kFloat8_e5m2 || type == kFloat8_e4m3fn;
}
inline bool isIntegralType(ScalarType type, bool with_bool) {
  return static_cast<int>(type) <= static_cast<int>(kLong) || (with_bool && type == kBool);
}

}  // namespace c10

template <>
class std::numeric_limits<c10::Half> : public std::numeric_limits<float> {
 public:
  static constexpr int digits = 11;
#define SLIM_LIMIT(name, bits) \
  static constexpr C10_HOST_DEVICE c10::Half name() { return c10::Half(bits, c10::Half::from_bits()); }
  SLIM_LIMIT(min, 0x0400) SLIM_LIMIT(lowest, 0xFBFF) SLIM_LIMIT(max, 0x7BFF) SLIM_LIMIT(epsilon, 0x1400)
  SLIM_LIMIT(infinity, 0x7C00) SLIM_LIMIT(quiet_NaN, 0x7E00)
#undef SLIM_LIMIT
};
template <>
class std::numeric_limits<c10::BFloat16> : public std::numeric_limits<float> {
 public:
  static constexpr int digits = 8;
#define SLIM_LIMIT(name, bits) \
  static constexpr C10_HOST_DEVICE c10::BFloat16 name() { return c10::BFloat16(bits, c10::BFloat16::from_bits()); }
  SLIM_LIMIT(min, 0x0080) SLIM_LIMIT(lowest, 0xFF7F) SLIM_LIMIT(max, 0x7F7F) SLIM_LIMIT(epsilon, 0x3C00)
  SLIM_LIMIT(infinity, 0x7F80) SLIM_LIMIT(quiet_NaN, 0x7FC0)
#undef SLIM_LIMIT
};

// Torch's own know these of eight bits.
template <>
class std::numeric_limits<c10::Float8_e5m2>;
template <>
class std::numeric_limits<c10::Float8_e4m3fn>;

namespace at {
using namespace c10;
}  // namespace at
