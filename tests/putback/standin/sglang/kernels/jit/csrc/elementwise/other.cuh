// A stand-in for the file of a framework that holds gated activations: the structure, and nothing else.
#include <string>

namespace {

template <typename T, bool kUsePDL>
struct ActivationKernel {
    static void run_activation(const T *input, T *out, std::string kind) {
        for (int i = 0; i < 8; ++i) out[i] = input[i] * input[i + 8];
    }

    static void run_unary_activation(const T *input, T *out) { out[0] = input[0]; }
};

}  // namespace
