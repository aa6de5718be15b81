# right: torch's product with the bias, then one kernel through torch's runtime compiler that scales and adds in place
# problem: level2/40
# ours: passed
import torch
import torch.nn as nn

CUDA = r"""
extern "C" __global__ void scale_and_add(float4* y, double scaling, int quads) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= quads) return;
    const float s = (float)scaling;
    float4 v = y[at];
    y[at] = make_float4(v.x * s + v.x, v.y * s + v.y, v.z * s + v.z, v.w * s + v.w);
}
"""


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.scaling_factor = float(scaling_factor)
        self.kernel = torch.cuda._compile_kernel(CUDA, "scale_and_add")

    def forward(self, x):
        y = self.matmul(x)
        quads = y.numel() // 4
        assert y.is_contiguous() and quads * 4 == y.numel()
        self.kernel(grid=((quads + 255) // 256, 1, 1), block=(256, 1, 1), args=[y, self.scaling_factor, quads])
        return y
