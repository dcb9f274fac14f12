// The arithmetic of mma_sync, which the runtime has for all kernels: they do not include this.
#pragma once
#include "host_runtime.h"
#include "tcusim_rule.h"

namespace tcusim {

// A rule, and the types of the program's products, numbered as Type.
struct Numerics {
    int32_t ab, acc;
    tcusim_rule rule;
};

// d = a.b + c of whole tiles, row-major, in memory types; see numerics.cpp.
void multiply(
    const Mma& shape, const Numerics& how, void* d, const void* a, const void* b, const void* c
);

}  // namespace tcusim
