// {{ operator }} ({{ dtype }}), made faster, in front of {{ schema_name }} of sglang {{ version }}.
// Candidate {{ candidate }}.
// Loading this library puts `guarded` into torch's dispatcher. It calls the candidate where it was certified, and else the
// kernel that was there before.
#define {{ symbol }} warpsmith_{{ symbol }}
#include "{{ file }}"
#undef {{ symbol }}

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <utility>
#include <vector>

namespace {

const c10::OperatorHandle &operator_handle() {
    static const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow("sgl_kernel::{{ symbol }}", "");
    return handle;
}

// What was there before: the definitions of one file are made in their order, and the registration stands further down.
const c10::SafeKernelFunction original = operator_handle().getComputedKernelForDispatchKey(c10::DispatchKey::CUDA);

enum Reason { HIT{% for reason in reasons %}, {{ reason.name }}{% endfor %}, REASONS };
std::array<std::atomic<int64_t>, REASONS> counted{};
std::atomic<bool> ours{true}, constrained{false};

bool capable(const at::Device &device) {
    const auto *properties = at::cuda::getDeviceProperties(device.index());
    return properties->major == {{ capability[0] }} && properties->minor == {{ capability[1] }};
}

[[maybe_unused]] bool one_of(int64_t value, std::initializer_list<int64_t> values) {
    for (int64_t known : values) {
        if (known == value) return true;
    }
    return false;
}

// Why the original must serve this call; HIT where the candidate may.
Reason refusal({% for tensor in tensors %}const at::Tensor &{{ tensor.name }}{% if not loop.last %}, {% endif %}{% endfor %}) {
    if (!ours) return SWITCHED_OFF;
    const at::Tensor *all[] = { {%- for tensor in tensors %}&{{ tensor.name }}{% if not loop.last %}, {% endif %}{% endfor -%} };
    for (const at::Tensor *tensor : all) {
        if (!tensor->is_cuda() || tensor->device() != all[0]->device()) return DEVICE;
    }
    if (!capable(all[0]->device())) return DEVICE;
{%- for tensor in tensors %}
    if ({{ tensor.name }}.scalar_type() != at::ScalarType::{{ tensor.scalar }}) return DTYPE;
    if ({{ tensor.name }}.dim() != {{ tensor.shape | length }}) return RANK;
    if (!{{ tensor.name }}.is_contiguous()) return LAYOUT;
{%- endfor %}
{%- for axis in axes %}
    const int64_t {{ axis.name }} = {{ axis.tensor }}.size({{ axis.place }});
{%- endfor %}
{%- for tensor in tensors %}{% for size in tensor.shape %}
    if ({{ tensor.name }}.size({{ loop.index0 }}) != ({{ size }})) return SHAPE;
{%- endfor %}{% endfor %}
{%- for constraint in constraints %}
    if (!({{ constraint }})) return CONSTRAINT;
{%- endfor %}
{%- for axis in axes %}
    if ({{ axis.name }} < 1) return AXIS_{{ axis.name }};
    if (!constrained && !({{ axis.certified }})) return AXIS_{{ axis.name }};
{%- endfor %}
    for (size_t i = 0; i < {{ tensors | length }}; ++i) {
        const auto start = reinterpret_cast<uintptr_t>(all[i]->data_ptr());
        if (start % {{ alignment }} != 0) return ALIGNMENT;
        for (size_t j = 0; j < i; ++j) {
            const auto other = reinterpret_cast<uintptr_t>(all[j]->data_ptr());
            if (start < other + all[j]->nbytes() && other < start + all[i]->nbytes()) return OVERLAP;
        }
    }
    return HIT;
}

void guarded({% for argument in schema %}{{ argument.type }} {{ argument.name }}{% if not loop.last %}, {% endif %}{% endfor %}) {
    const Reason why = refusal({% for tensor in tensors %}{{ tensor.name }}{% if not loop.last %}, {% endif %}{% endfor %});
    counted[why].fetch_add(1, std::memory_order_relaxed);
    if (why == HIT) {
        warpsmith_{{ symbol }}({% for argument in schema %}{{ argument.name }}{% if not loop.last %}, {% endif %}{% endfor %});
        return;
    }
    std::vector<c10::IValue> stack{ {%- for argument in schema %}{{ argument.name }}{% if not loop.last %}, {% endif %}{% endfor -%} };
    original.callBoxed(operator_handle(), c10::DispatchKeySet(c10::DispatchKey::CUDA), &stack);
}

std::vector<int64_t> counters() {
    return std::vector<int64_t>(counted.begin(), counted.end());
}

}  // namespace

TORCH_LIBRARY_IMPL(sgl_kernel, CUDA, m) {
    m.impl("{{ symbol }}", &guarded);
}

// Beside it, for tests and comparisons: hits and refusals in the order of the reasons, and a switch.
TORCH_LIBRARY({{ namespace }}, m) {
    m.def("counters() -> int[]", &counters);
    m.def("set_ours(bool ours) -> ()", [](bool on) { ours = on; });
    m.def("set_constrained(bool constrained) -> ()", [](bool on) { constrained = on; });
}
