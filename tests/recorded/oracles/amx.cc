// TDPBF16PS as bochs/cpu/avx/amx.cc computes an output, by its softfloat.
#include <stdint.h>
#include <stdio.h>
#include "softfloat3e/include/softfloat.h"
static float32 w(uint16_t v, bool bf, softfloat_status_t* s) { return bf ? (float32)v << 16 : f16_to_f32(v, s); }
int main(int n, char** v) {
  bool bf = v[1][0] == 'b'; const int K = 32; uint16_t a[K], b[K]; uint32_t c;
  softfloat_status_t s, h;
  s.softfloat_roundingMode = softfloat_round_near_even; s.softfloat_exceptionFlags = 0; s.softfloat_exceptionMasks = softfloat_all_exceptions_mask;
  s.softfloat_suppressException = softfloat_all_exceptions_mask; s.softfloat_flush_underflow_to_zero = true; s.softfloat_denormals_are_zeros = true;
  h = s; h.softfloat_denormals_are_zeros = false;
  while (fread(a, sizeof a, 1, stdin) == 1 && fread(b, sizeof b, 1, stdin) == 1 && fread(&c, 4, 1, stdin) == 1) {
    float32 t0 = 0, t1 = 0;
    for (int k = 0; k < K / 2; k++) {
      t0 = f32_mulAdd(w(a[2*k], bf, &h), w(b[2*k], bf, &h), t0, 0, &s);
      t1 = f32_mulAdd(w(a[2*k+1], bf, &h), w(b[2*k+1], bf, &h), t1, 0, &s);
    }
    uint32_t d = f32_add(c, f32_add(t0, t1, &s), &s); fwrite(&d, 4, 1, stdout);
  }
}
