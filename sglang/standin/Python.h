// In the place of Python's header of this name: there is no Python here, and so no module of it to define.
#pragma once
#define FLASHINFER_EXT_MODULE_INITED
