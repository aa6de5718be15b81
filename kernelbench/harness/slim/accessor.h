// How is an element reached by its indices?
#pragma once

namespace at {

// A view with sizes and strides that lie elsewhere.
template <class T, size_t N, template <class> class Traits, class Index>
class AccessorBase {
 public:
  using PtrType = typename Traits<T>::PtrType;
  C10_HOST_DEVICE AccessorBase(PtrType data, const Index* sizes, const Index* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  C10_HOST_DEVICE decltype(auto) operator[](Index at) const {
    if constexpr (N == 1) {
      return static_cast<T&>(data_[strides_[0] * at]);
    } else {
      return AccessorBase<T, N - 1, Traits, Index>(data_ + strides_[0] * at, sizes_ + 1, strides_ + 1);
    }
  }
  C10_HOST_DEVICE Index size(int axis) const { return sizes_[axis]; }
  C10_HOST_DEVICE Index stride(int axis) const { return strides_[axis]; }
  C10_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  const Index *sizes_, *strides_;
};

template <class T, size_t N>
class TensorAccessor : public AccessorBase<T, N, DefaultPtrTraits, int64_t> {
 public:
  using AccessorBase<T, N, DefaultPtrTraits, int64_t>::AccessorBase;
};

// A view that carries its sizes and strides, to be handed to a kernel.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
class PackedTensorAccessor {
 public:
  using PtrType = typename Traits<T>::PtrType;
  PackedTensorAccessor(PtrType data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t i = 0; i < N; i++) {
      sizes_[i] = static_cast<Index>(sizes[i]);
      strides_[i] = static_cast<Index>(strides[i]);
    }
  }
  C10_HOST_DEVICE decltype(auto) operator[](Index at) const {
    return AccessorBase<T, N, Traits, Index>(data_, sizes_, strides_)[at];
  }
  C10_HOST_DEVICE Index size(int axis) const { return sizes_[axis]; }
  C10_HOST_DEVICE Index stride(int axis) const { return strides_[axis]; }
  C10_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  Index sizes_[N], strides_[N];
};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = PackedTensorAccessor<T, N, Traits, int>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = PackedTensorAccessor<T, N, Traits, int64_t>;

template <class T, size_t N>
TensorAccessor<T, N> Tensor::accessor() const {
  TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
  return TensorAccessor<T, N>(data_ptr<T>(), facts().sizes.data(), facts().strides.data());
}
template <class T, size_t N, template <class> class Traits>
PackedTensorAccessor<T, N, Traits, int> Tensor::packed_accessor32() const {
  TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
  TORCH_CHECK(numel() <= 0x7fffffff,
              "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
  return {data_ptr<T>(), facts().sizes.data(), facts().strides.data()};
}
template <class T, size_t N, template <class> class Traits>
PackedTensorAccessor<T, N, Traits, int64_t> Tensor::packed_accessor64() const {
  TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
  return {data_ptr<T>(), facts().sizes.data(), facts().strides.data()};
}

}  // namespace at
