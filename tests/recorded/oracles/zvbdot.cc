// Dot products of RISC-V's Zvbdot by Spike: bulknormdot.h with its softfloat.
extern "C" {
#include "softfloat.h"
}
#include <cstdio>
#include <cstring>
static inline float32_t f32(uint32_t v) { float32_t r; r.v = v; return r; }
#include "zvbdot.h"
template <class T, int N, class F> int all(F dot) {
  struct { T a[N], b[N]; uint32_t c; } r;
  while (fread(&r, sizeof r, 1, stdin) == 1) {
    uint32_t d = dot(std::vector<T>(r.a, r.a + N), std::vector<T>(r.b, r.b + N), f32(r.c)).v; fwrite(&d, 4, 1, stdout);
  }
  return 0;
}
int main(int, char** v) {
  if (!strcmp(v[1], "bf16")) return all<uint16_t, 16>([](auto a, auto b, auto c) { return zvfwbdot16bf_dot_acc(a, b, c); });
  if (!strcmp(v[1], "e4m3")) return all<uint8_t, 32>([](auto a, auto b, auto c) { return zvfqbdot8f_dot_acc<ofp8_e4m3, ofp8_e4m3>(a, b, c); });
  return all<uint8_t, 32>([](auto a, auto b, auto c) { return zvfqbdot8f_dot_acc<ofp8_e5m2, ofp8_e5m2>(a, b, c); });
}
