// Which methods does a tensor have that torch's Python offers too? The inside of the class Tensor.
//
// Only with the arguments that mean the same there, by position.

#define SLIM_SAME(name) \
  Tensor name() const { return Tensor(call(SLIM_NAME(#name))); }
SLIM_SAME(abs) SLIM_SAME(exp) SLIM_SAME(exp2) SLIM_SAME(expm1) SLIM_SAME(log) SLIM_SAME(log1p) SLIM_SAME(log2)
SLIM_SAME(sqrt) SLIM_SAME(rsqrt) SLIM_SAME(square) SLIM_SAME(reciprocal) SLIM_SAME(neg) SLIM_SAME(sigmoid)
SLIM_SAME(tanh) SLIM_SAME(relu) SLIM_SAME(floor) SLIM_SAME(ceil) SLIM_SAME(round) SLIM_SAME(sin) SLIM_SAME(cos)
SLIM_SAME(erf) SLIM_SAME(t) SLIM_SAME(sum) SLIM_SAME(mean) SLIM_SAME(max) SLIM_SAME(min) SLIM_SAME(prod)
SLIM_SAME(all) SLIM_SAME(any) SLIM_SAME(isnan) SLIM_SAME(argmax) SLIM_SAME(argmin) SLIM_SAME(clone)
SLIM_SAME(contiguous) SLIM_SAME(detach) SLIM_SAME(cpu) SLIM_SAME(cuda) SLIM_SAME(squeeze) SLIM_SAME(norm)
#undef SLIM_SAME

#define SLIM_IN_PLACE(name)         \
  const Tensor& name() const {      \
    call(SLIM_NAME(#name));         \
    return *this;                   \
  }
SLIM_IN_PLACE(zero_) SLIM_IN_PLACE(relu_) SLIM_IN_PLACE(exp_) SLIM_IN_PLACE(sqrt_) SLIM_IN_PLACE(sigmoid_)
SLIM_IN_PLACE(tanh_) SLIM_IN_PLACE(neg_) SLIM_IN_PLACE(abs_)
#undef SLIM_IN_PLACE

#define SLIM_WITH(name) \
  Tensor name(const Tensor& other) const { return Tensor(call(SLIM_NAME(#name), other)); }
SLIM_WITH(matmul) SLIM_WITH(mm) SLIM_WITH(bmm) SLIM_WITH(mv) SLIM_WITH(dot) SLIM_WITH(add) SLIM_WITH(sub)
SLIM_WITH(mul) SLIM_WITH(div) SLIM_WITH(view_as) SLIM_WITH(expand_as) SLIM_WITH(reshape_as) SLIM_WITH(type_as)
#undef SLIM_WITH

#define SLIM_WITH_NUMBER(name) \
  Tensor name(const Scalar& other) const { return Tensor(call(SLIM_NAME(#name), other)); }
SLIM_WITH_NUMBER(add) SLIM_WITH_NUMBER(sub) SLIM_WITH_NUMBER(mul) SLIM_WITH_NUMBER(div) SLIM_WITH_NUMBER(pow)
SLIM_WITH_NUMBER(clamp_min) SLIM_WITH_NUMBER(clamp_max)
#undef SLIM_WITH_NUMBER

#define SLIM_CHANGED_BY(name, type)         \
  const Tensor& name(type other) const {    \
    call(SLIM_NAME(#name), other);          \
    return *this;                           \
  }
SLIM_CHANGED_BY(copy_, const Tensor&) SLIM_CHANGED_BY(add_, const Tensor&) SLIM_CHANGED_BY(sub_, const Tensor&)
SLIM_CHANGED_BY(mul_, const Tensor&) SLIM_CHANGED_BY(div_, const Tensor&) SLIM_CHANGED_BY(fill_, const Scalar&)
SLIM_CHANGED_BY(add_, const Scalar&) SLIM_CHANGED_BY(sub_, const Scalar&) SLIM_CHANGED_BY(mul_, const Scalar&)
SLIM_CHANGED_BY(div_, const Scalar&)
#undef SLIM_CHANGED_BY
Tensor& operator+=(const Tensor& other) { return add_(other), *this; }
Tensor& operator-=(const Tensor& other) { return sub_(other), *this; }
Tensor& operator*=(const Tensor& other) { return mul_(other), *this; }
Tensor& operator/=(const Tensor& other) { return div_(other), *this; }

#define SLIM_OF_SHAPE(name) \
  Tensor name(c10::IntArrayRef sizes) const { return Tensor(call(SLIM_NAME(#name), sizes)); }
SLIM_OF_SHAPE(view) SLIM_OF_SHAPE(reshape) SLIM_OF_SHAPE(expand) SLIM_OF_SHAPE(permute) SLIM_OF_SHAPE(repeat)
#undef SLIM_OF_SHAPE

#define SLIM_OF_AXIS(name) \
  Tensor name(int64_t axis) const { return Tensor(call(SLIM_NAME(#name), axis)); }
SLIM_OF_AXIS(squeeze) SLIM_OF_AXIS(unsqueeze) SLIM_OF_AXIS(cumsum) SLIM_OF_AXIS(softmax) SLIM_OF_AXIS(log_softmax)
SLIM_OF_AXIS(argmax) SLIM_OF_AXIS(argmin)
#undef SLIM_OF_AXIS

#define SLIM_REDUCE(name)                                                             \
  Tensor name(int64_t axis, bool keep = false) const {                                \
    return Tensor(call(SLIM_NAME(#name), axis, keep));                                \
  }                                                                                   \
  Tensor name(const std::initializer_list<int64_t>& axes, bool keep = false) const {  \
    return Tensor(call(SLIM_NAME(#name), c10::IntArrayRef(axes), keep));              \
  }
SLIM_REDUCE(sum) SLIM_REDUCE(mean)
#undef SLIM_REDUCE
std::tuple<Tensor, Tensor> max(int64_t axis, bool keep = false) const {
  return read<std::tuple<Tensor, Tensor>>(call(SLIM_NAME("max"), axis, keep));
}
std::tuple<Tensor, Tensor> min(int64_t axis, bool keep = false) const {
  return read<std::tuple<Tensor, Tensor>>(call(SLIM_NAME("min"), axis, keep));
}

Tensor transpose(int64_t a, int64_t b) const { return Tensor(call(SLIM_NAME("transpose"), a, b)); }
Tensor flatten(int64_t first = 0, int64_t last = -1) const { return Tensor(call(SLIM_NAME("flatten"), first, last)); }
Tensor select(int64_t axis, int64_t at) const { return Tensor(call(SLIM_NAME("select"), axis, at)); }
Tensor narrow(int64_t axis, int64_t start, int64_t length) const {
  return Tensor(call(SLIM_NAME("narrow"), axis, start, length));
}
Tensor index_select(int64_t axis, const Tensor& index) const { return Tensor(call(SLIM_NAME("index_select"), axis, index)); }
Tensor operator[](int64_t at) const { return select(0, at); }
Tensor clamp(const std::optional<Scalar>& low, const std::optional<Scalar>& high = std::nullopt) const {
  return Tensor(call(SLIM_NAME("clamp"), low, high));
}
Tensor to(c10::ScalarType type, bool non_blocking = false, bool copy = false) const {
  return Tensor(call(SLIM_NAME("to"), type, non_blocking, copy));
}
Tensor to(c10::TypeMeta type) const { return to(type.toScalarType()); }
Tensor to(c10::Device device) const { return Tensor(call(SLIM_NAME("to"), device)); }
Tensor to(c10::DeviceType device) const { return to(c10::Device(device)); }
Tensor to(c10::Device device, c10::ScalarType type) const { return Tensor(call(SLIM_NAME("to"), device, type)); }
Tensor to(const c10::TensorOptions& options) const {
  return to(options.has_device() ? options.device() : device(), options.has_dtype() ? options.dtype().toScalarType() : scalar_type());
}
Tensor toType(c10::ScalarType type) const { return to(type); }
Tensor to_type(c10::ScalarType type) const { return to(type); }
bool requires_grad() const { return read<bool>(slim::attribute(facts().object.get(), SLIM_NAME("requires_grad"))); }
