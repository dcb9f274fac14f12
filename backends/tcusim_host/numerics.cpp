// d = a.b + c of whole tiles: the arithmetic of a rule is tcusim_rule.h's.
#include "host_numerics.h"

namespace tcusim {
namespace {

// The decoded operands of one tile: its blocks run one after the other.
tcusim_number scratch[2 * kMaxTile];

}  // namespace

void multiply(
    const Mma& shape, const Numerics& how, void* d, const void* a, const void* b, const void* c
) {
    tcusim_rule_tile(&how.rule, shape.m, shape.n, shape.k, d, a, b, c, nullptr, nullptr, scratch);
}

// One output, of lanes that multiply: c + a.b of contiguous operands; see tiles.cuh.
tcusim_u64 dot(const tcusim_rule& rule, int k, const void* a, const void* b, tcusim_u64 c) {
    return tcusim_rule_dot(&rule, k, a, 1, b, 1, c, nullptr, 0, nullptr, 0);
}

}  // namespace tcusim

// Multiplies one tile, row-major, without a kernel: for tests.
extern "C" __attribute__((visibility("default"))) void tcusim_multiply(
    int32_t m,
    int32_t n,
    int32_t k,
    const tcusim::Numerics* how,
    void* d,
    const void* a,
    const void* b,
    const void* c
) {
    const tcusim::Mma shape = {
        m, n, k, static_cast<tcusim::Type>(how->ab), static_cast<tcusim::Type>(how->acc)
    };
    tcusim::multiply(shape, *how, d, a, b, c);
}
