// In which type are sums of an element type kept?
#pragma once

namespace at {

template <class T>
struct OpMathType {
  using type = T;
};
template <>
struct OpMathType<c10::Half> {
  using type = float;
};
template <>
struct OpMathType<c10::BFloat16> {
  using type = float;
};
template <>
struct OpMathType<c10::Float8_e5m2> {
  using type = float;
};
template <>
struct OpMathType<c10::Float8_e4m3fn> {
  using type = float;
};
template <class T>
using opmath_type = typename OpMathType<T>::type;

template <class T, bool on_gpu>
struct AccumulateType {
  using type = std::conditional_t<std::is_integral<T>::value, int64_t, double>;
};
template <>
struct AccumulateType<float, true> {
  using type = float;
};
template <>
struct AccumulateType<c10::Half, true> {
  using type = float;
};
template <>
struct AccumulateType<c10::BFloat16, true> {
  using type = float;
};
template <>
struct AccumulateType<c10::Half, false> {
  using type = float;
};
template <>
struct AccumulateType<c10::BFloat16, false> {
  using type = float;
};
// Torch's own say what sums of eight bits are kept in.
template <bool on_gpu>
struct AccumulateType<c10::Float8_e5m2, on_gpu>;
template <bool on_gpu>
struct AccumulateType<c10::Float8_e4m3fn, on_gpu>;
template <>
struct AccumulateType<bool, true> {
  using type = bool;
};
template <>
struct AccumulateType<bool, false> {
  using type = bool;
};
template <class T, bool on_gpu>
using acc_type = typename AccumulateType<T, on_gpu>::type;

}  // namespace at
