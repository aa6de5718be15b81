// Which of several element types is a piece of code compiled for, and which runs?
#pragma once

namespace slim {
inline c10::ScalarType type_of(c10::ScalarType type) { return type; }
}  // namespace slim

#define AT_PRIVATE_CASE_TYPE_USING_HINT(which, hint, ...)                          \
  case which: {                                                                    \
    using hint [[maybe_unused]] = c10::impl::ScalarTypeToCPPTypeT<which>;          \
    return __VA_ARGS__();                                                          \
  }
#define AT_DISPATCH_CASE(which, ...) AT_PRIVATE_CASE_TYPE_USING_HINT(which, scalar_t, __VA_ARGS__)
#define AT_DISPATCH_SWITCH(type, name, ...)                                                              \
  [&] {                                                                                                  \
    const ::c10::ScalarType slim_type = ::slim::type_of(type);                                           \
    switch (slim_type) {                                                                                 \
      __VA_ARGS__                                                                                        \
      default:                                                                                           \
        ::slim::fail("", ::slim::text('"', name, "\" not implemented for '", slim_type, "'"));           \
    }                                                                                                    \
  }()

#define AT_DISPATCH_CASE_FLOATING_TYPES(...)            \
  AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)            \
  AT_DISPATCH_CASE(::c10::ScalarType::Byte, __VA_ARGS__)   \
  AT_DISPATCH_CASE(::c10::ScalarType::Char, __VA_ARGS__)   \
  AT_DISPATCH_CASE(::c10::ScalarType::Int, __VA_ARGS__)    \
  AT_DISPATCH_CASE(::c10::ScalarType::Long, __VA_ARGS__)   \
  AT_DISPATCH_CASE(::c10::ScalarType::Short, __VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(a, type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(a, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(type, name, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND(::c10::ScalarType::Half, type, name, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND2(a, b, type, name, ...)                               \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)                \
                                     AT_DISPATCH_CASE(a, __VA_ARGS__) AT_DISPATCH_CASE(b, __VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(type, name, ...)                                  \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__)      \
                                     AT_DISPATCH_CASE(::c10::ScalarType::BFloat16, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_CASE_ALL_TYPES(...) AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES(type, name, ...) AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(a, type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(a, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(a, b, type, name, ...)                                    \
  AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__)                     \
                                     AT_DISPATCH_CASE(a, __VA_ARGS__) AT_DISPATCH_CASE(b, __VA_ARGS__))
