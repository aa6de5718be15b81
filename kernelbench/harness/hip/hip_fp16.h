// Half precision stands in the runtime's own header here.
#pragma once

#include <hip/hip_runtime.h>
