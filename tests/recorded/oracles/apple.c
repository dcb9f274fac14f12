/* Chains of eight outer products by fma16 of corsix/amx, on an emulated Arm. */
#include <stdio.h>
#include "emulate.h"
uint32_t AMX_VER = 1;
void load_xy_reg_indexed(uint8_t* d, const uint8_t* t, uint32_t i, uint32_t e) {}
void emulate_AMX_FMA16(amx_state*, uint64_t);
int main(int n, char** v) {
  int wide = v[1][0] == 'w'; static amx_state s; uint16_t a[8], b[8]; uint32_t c; uint16_t h;
  while (fread(a, 16, 1, stdin) && fread(b, 16, 1, stdin) && (wide ? fread(&c, 4, 1, stdin) : fread(&h, 2, 1, stdin))) {
    memset(&s.z, 0, sizeof s.z); if (wide) s.z[0].u32[0] = c; else s.z[0].u16[0] = h;
    for (int i = 0; i < 8; i++) { memset(&s.x, 0, sizeof s.x); memset(&s.y, 0, sizeof s.y); s.x[0].u16[0] = a[i]; s.y[0].u16[0] = b[i]; emulate_AMX_FMA16(&s, wide ? 1ull << 62 : 0); }
    if (wide) fwrite(&s.z[0].u32[0], 4, 1, stdout); else fwrite(&s.z[0].u16[0], 2, 1, stdout);
  }
}
