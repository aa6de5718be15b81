"""Softplus of an object that holds a tensor: a class of an extension, as candidates have them that keep their weights in C++."""

import copy
import gc

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

static int alive = 0;

class Runner {
public:
    Runner(std::vector<torch::Tensor> weights, double limit) : weights_(std::move(weights)), limit_(limit) { alive++; }
    explicit Runner(const torch::Tensor& weight) : Runner(std::vector<torch::Tensor>{weight}, 20.0) {}
    ~Runner() { alive--; }
    torch::Tensor forward(const torch::Tensor& input) {
        TORCH_CHECK(input.scalar_type() == torch::kFloat32, "a runner takes float32");
        TORCH_CHECK(weights_[0].scalar_type() == torch::kFloat32, "a runner holds float32");
        auto output = torch::empty_like(input);
        const float* x = input.data_ptr<float>();
        const float* w = weights_[0].data_ptr<float>();
        float* y = output.data_ptr<float>();
        for (int64_t i = 0; i < input.numel(); i++) y[i] = x[i] > limit_ ? x[i] : w[0] * std::log1p(std::exp(x[i]));
        calls_++;
        return output;
    }
    int64_t calls() const { return calls_; }
    int64_t width() const { return weights_[0].size(0); }
    void reset(int64_t calls, bool really) { if (really) calls_ = calls; }

private:
    std::vector<torch::Tensor> weights_;
    double limit_;
    int64_t calls_ = 0;
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    py::class_<Runner, std::shared_ptr<Runner>>(m, "Runner")
        .def(py::init<std::vector<torch::Tensor>, double>(), py::arg("weights"), py::arg("limit") = 20.0)
        .def(py::init<const torch::Tensor&>())
        .def("forward", &Runner::forward, "the forward pass")
        .def("calls", &Runner::calls)
        .def("width", &Runner::width)
        .def("reset", &Runner::reset, py::arg("calls") = 0, py::arg("really") = true)
        .def("twice", [](Runner& self, const torch::Tensor& input) { return self.forward(self.forward(input)); });
    m.def("alive", []() { return alive; });
}
"""

extension = load_inline(name="softplus_class", cpp_sources=source)


def raised(kind, call, *args, **keywords):
    try:
        call(*args, **keywords)
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} raised no {kind}")


x, one = torch.tensor([-1.0, 0.0, 30.0]), torch.ones(1)
runner = extension.Runner([one], limit=25.0)
for each in (runner, extension.Runner(one), extension.Runner(weights=[one])):
    assert torch.allclose(each.forward(x), nn.functional.softplus(x))
assert torch.allclose(runner.twice(x), nn.functional.softplus(nn.functional.softplus(x)))
assert runner.calls() == 3
runner.reset(7)
assert runner.calls() == 7
runner.reset(really=False)
assert runner.calls() == 7
del each
gc.collect()
assert extension.alive() == 1, "what Python lets go is let go"
assert "float32" in raised(RuntimeError, runner.forward, x.double())
assert "incompatible" in raised(TypeError, runner.forward, 1)
assert "incompatible" in raised(TypeError, extension.Runner, "weights")
raised(TypeError, extension.Runner.forward, object(), x)
raised(TypeError, copy.copy, runner)
raised(AttributeError, setattr, runner, "name", 1)

# What it holds is the object, whatever memory lies under that: a module that moves gives its parameters other memory.
weight = nn.Parameter(torch.ones(1))
runner = extension.Runner(weight)
weight.data = torch.full((4096,), 2.0)
assert torch.allclose(runner.forward(x)[:2], 2 * nn.functional.softplus(x)[:2])
assert runner.width() == 4096
weight.data = torch.full((8,), 3.0, dtype=torch.float64)
assert "float32" in raised(RuntimeError, runner.forward, x)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.runner = extension.Runner([one], 20.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.runner.forward(x.contiguous())
