/* One FMOPA (f16) or BFMOPA (bf16) for the diagonal of a tile, on an emulated Arm; with FPCR.EBF (bf16 ebf). */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  int bf = argv[1][0] == 'b';
  uint64_t svl, fpcr;
  if (argc > 2) {
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    fpcr |= 1 << 13;
    asm volatile("msr fpcr, %0\n mrs %0, fpcr" : "+r"(fpcr));
    if (!(fpcr >> 13 & 1)) { fprintf(stderr, "this Arm has no FPCR.EBF: take QEMU 10\n"); return 3; }
  }
  asm volatile(".arch_extension sme\n rdsvl %0, #1" : "=r"(svl));
  int N = svl / 4;
  uint16_t za[128], zb[128]; static uint32_t row[64][64];
  struct { uint16_t a[2], b[2]; uint32_t c; } r[64];
  int n;
  while ((n = fread(r, sizeof r[0], N, stdin)) > 0) {
    memset(za, 0, sizeof za); memset(zb, 0, sizeof zb); memset(row, 0, sizeof row);
    for (int i = 0; i < n; i++) { memcpy(za + 2*i, r[i].a, 4); memcpy(zb + 2*i, r[i].b, 4); row[i][i] = r[i].c; }
    uint32_t* p = &row[0][0];
    asm volatile(
      ".arch_extension sme\n smstart\n ptrue p0.b\n zero {za}\n"
      "mov w12, #0\n mov x9, %[p]\n"
      "1: ld1w {za0h.s[w12, 0]}, p0/z, [x9]\n add x9, x9, #256\n add w12, w12, #1\n cmp w12, %w[N]\n b.lt 1b\n"
      "ptrue p0.h\n ld1h {z0.h}, p0/z, [%[za]]\n ld1h {z1.h}, p0/z, [%[zb]]\n"
      "cbnz %w[bf], 2f\n fmopa za0.s, p0/m, p0/m, z0.h, z1.h\n b 3f\n"
      "2: bfmopa za0.s, p0/m, p0/m, z0.h, z1.h\n"
      "3: ptrue p0.b\n mov w12, #0\n mov x9, %[p]\n"
      "4: st1w {za0h.s[w12, 0]}, p0, [x9]\n add x9, x9, #256\n add w12, w12, #1\n cmp w12, %w[N]\n b.lt 4b\n"
      "smstop\n"
      :: [p] "r"(p), [N] "r"(N), [za] "r"(za), [zb] "r"(zb), [bf] "r"(bf)
      : "memory", "x9", "x12", "cc", "v0","v1");
    for (int i = 0; i < n; i++) fwrite(&row[i][i], 4, 1, stdout);
  }
}
