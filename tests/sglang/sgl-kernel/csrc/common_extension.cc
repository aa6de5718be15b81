TORCH_LIBRARY_FRAGMENT(sgl_kernel, m) {
  m.def("merge_state_v2(Tensor v_a, Tensor s_a, Tensor v_b, Tensor s_b, Tensor! v_merged, Tensor! s_merged) -> ()");
  m.impl("merge_state_v2", torch::kCUDA, &merge_state_v2);
  m.def(
      "moe_sum(Tensor input, "
      "Tensor! output) -> ()");
  m.impl("moe_sum", torch::kCUDA, &moe_sum);
}
