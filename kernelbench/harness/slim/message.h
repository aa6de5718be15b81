// How does an extension say what went wrong?
#pragma once

namespace c10 {

// What TORCH_CHECK throws.
class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  std::string msg() const { return message_; }

 private:
  std::string message_;
};

class IndexError : public Error {
 public:
  using Error::Error;
};

// A list of T that somebody else owns.
template <class T>
class ArrayRef {
 public:
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(end - begin) {}
  ArrayRef(const std::vector<T>& all) : data_(all.data()), size_(all.size()) {}
  ArrayRef(const std::initializer_list<T>& all) : data_(all.begin()), size_(all.size()) {}
  template <size_t N>
  constexpr ArrayRef(const T (&all)[N]) : data_(all), size_(N) {}
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t at) const { return data_[at]; }
  const T& at(size_t at) const {
    if (at >= size_) throw Error("ArrayRef: invalid index");
    return data_[at];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; i++)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }
  ArrayRef slice(size_t from, size_t count) const { return ArrayRef(data_ + from, count); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) {
  return a.equals(b);
}
template <class T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) {
  return !a.equals(b);
}
inline bool operator==(const std::vector<int64_t>& a, ArrayRef<int64_t> b) { return ArrayRef<int64_t>(a).equals(b); }
inline bool operator==(ArrayRef<int64_t> a, const std::vector<int64_t>& b) { return a.equals(b); }
using IntArrayRef = ArrayRef<int64_t>;

using std::nullopt;
using std::nullopt_t;
using std::optional;

}  // namespace c10

// Found by their argument's namespace, wherever they are declared.
namespace c10 {
inline void append_to(std::string& text, ScalarType more) { text += toString(more); }
}  // namespace c10

namespace slim {

inline void append_to(std::string& text, const char* more) { text += more; }
inline void append_to(std::string& text, const std::string& more) { text += more; }
inline void append_to(std::string& text, char more) { text += more; }
inline void append_to(std::string& text, double more) {
  char digits[32];
  __builtin_snprintf(digits, sizeof digits, "%g", more);
  text += digits;
}
inline void append_to(std::string& text, float more) { append_to(text, static_cast<double>(more)); }
template <class T, class = std::enable_if_t<std::is_integral<T>::value>>
void append_to(std::string& text, T more) {
  text += std::to_string(more);
}
template <class T>
void append_to(std::string& text, c10::ArrayRef<T> more) {
  text += '[';
  for (size_t i = 0; i < more.size(); i++) {
    if (i) text += ", ";
    append_to(text, more[i]);
  }
  text += ']';
}
template <class T>
void append_to(std::string& text, const std::vector<T>& more) {
  append_to(text, c10::ArrayRef<T>(more));
}

template <class... Parts>
std::string text(const Parts&... parts) {
  std::string whole;
  (append_to(whole, parts), ...);
  return whole;
}

[[noreturn]] inline void fail(const char* otherwise, const std::string& message) {
  throw c10::Error(message.empty() ? otherwise : message);
}

}  // namespace slim

namespace c10 {
template <class... Parts>
std::string str(const Parts&... parts) {
  return slim::text(parts...);
}
}  // namespace c10

#define TORCH_CHECK(condition, ...)                                                                  \
  do {                                                                                               \
    if (__builtin_expect(static_cast<bool>(!(condition)), 0))                                        \
      ::slim::fail("Expected " #condition " to be true, but got false.", ::slim::text(__VA_ARGS__)); \
  } while (0)
#define TORCH_WARN(...) static_cast<void>(std::fprintf(stderr, "Warning: %s\n", ::slim::text(__VA_ARGS__).c_str()))
#define TORCH_CHECK_VALUE(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) static_cast<void>(0)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define AT_ASSERT(condition) TORCH_CHECK(condition)
#define AT_ERROR(...) ::slim::fail("", ::slim::text(__VA_ARGS__))
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK((a) == (b), "Check failed: " #a " == " #b)
#define TORCH_CHECK_NE(a, b) TORCH_CHECK((a) != (b), "Check failed: " #a " != " #b)
#define TORCH_CHECK_LT(a, b) TORCH_CHECK((a) < (b), "Check failed: " #a " < " #b)
#define TORCH_CHECK_LE(a, b) TORCH_CHECK((a) <= (b), "Check failed: " #a " <= " #b)
#define TORCH_CHECK_GT(a, b) TORCH_CHECK((a) > (b), "Check failed: " #a " > " #b)
#define TORCH_CHECK_GE(a, b) TORCH_CHECK((a) >= (b), "Check failed: " #a " >= " #b)
