// In the place of torch's header of this name.
#pragma once
#include <warpsmith/tensor.h>
