// The part of torch's C++ interface that kernels written for it use, over Python's stable C interface.
//
// It is read in a fraction of a second, where torch's own headers take half a minute. What it lacks does not compile,
// and then the extension is built with torch's own.
#pragma once
#include <sys/types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python.h"

// Two extensions in one process share nothing of this.
#pragma GCC visibility push(hidden)
#include "scalar.h"
#include "message.h"
#include "value.h"
#include "options.h"
#include "tensor.h"
#include "accessor.h"
#include "factory.h"
#include "dispatch.h"
#pragma GCC visibility pop
