#include <stdint.h>
#include <stdio.h>
/* a dot product of SrcB (a) and SrcA (b), four fidelity phases, as MVMUL.md writes it */
static int32_t rd(uint32_t x) { uint32_t m = (x >> 8) & 0x3ff; return x >> 18 ? -(int32_t)m : (int32_t)m; }
static uint32_t enc(int8_t v) { uint32_t m = v < 0 ? -(int32_t)v : v; return (uint32_t)(v < 0) << 18 | m << 8; }
static int32_t sat(int32_t x, int32_t y) { int64_t s = (int64_t)x + y; const int64_t M = 0x7fffffff; return s > M ? M : s < -M ? -M : (int32_t)s; }
int main(void) {
  int8_t a[16], b[16]; int32_t c;
  while (fread(a, 16, 1, stdin) && fread(b, 16, 1, stdin) && fread(&c, 4, 1, stdin)) {
    for (int p = 0; p < 4; p++) { int32_t x = 0;
      for (int k = 0; k < 16; k++) x += rd(enc(a[k]) & (p & 2 ? 0x40fff : 0x7f0ff)) * rd(enc(b[k]) & (p & 1 ? 0x41fff : 0x4e0ff));
      c = sat(x, c); }
    fwrite(&c, 4, 1, stdout);
  }
}
