// GEMM of VTA's functional simulator, on its own memories. TVM's names are declared here and not used.
#include <bits/stdc++.h>
#define IGNORED std::ostream(nullptr)
#define CHECK(a) IGNORED
#define CHECK_LT(a, b) IGNORED
#define CHECK_LE(a, b) IGNORED
#define CHECK_EQ(a, b) IGNORED
#define CHECK_NE(a, b) IGNORED
#define LOG(level) std::cerr
namespace tvm::runtime {
struct TVMRetValue { void operator=(std::string) {} };
struct TVMArgs { int operator[](int) { return 0; } };
struct Global { template <class F> Global& set_body(F) { return *this; } };
}
#define NAME(x) global_##x
#define LINE(x) NAME(x)
#define TVM_REGISTER_GLOBAL(name) static auto LINE(__LINE__) = tvm::runtime::Global()
#define private public
#include <src/sim/sim_driver.cc>
#include <src/sim/sim_tlpp.cc>
#include <src/vmem/virtual_memory.cc>
int main() {
  vta::sim::Device d; VTAGemInsn op{};
  op.opcode = VTA_OPCODE_GEMM; op.uop_end = op.iter_out = op.iter_in = 1;
  memset(d.uop_.BeginPtr(0), 0, 4); memset(d.wgt_.BeginPtr(0), 0, 256); memset(d.acc_.BeginPtr(0), 0, 64);
  struct { int8_t a[16], b[16]; int32_t c; } r;
  while (fread(&r, sizeof r, 1, stdin) == 1) {
    memcpy(d.inp_.BeginPtr(0), r.a, 16); memcpy(d.wgt_.BeginPtr(0), r.b, 16); memcpy(d.acc_.BeginPtr(0), &r.c, 4);
    d.RunGEMM(&op); fwrite(d.acc_.BeginPtr(0), 4, 1, stdout);
  }
}
