/* Chains of eight outer products by fma16 of corsix/amx, on an emulated Arm; 32 records on the diagonal. */
#include <stdio.h>
#include "emulate.h"
uint32_t AMX_VER = 1;
void load_xy_reg_indexed(uint8_t* d, const uint8_t* t, uint32_t i, uint32_t e) {}
void emulate_AMX_FMA16(amx_state*, uint64_t);
int main(int n, char** v) {
  int wide = v[1][0] == 'w'; static amx_state s; uint16_t a[32][8], b[32][8];
  do {
    memset(&s, 0, sizeof s); memset(a, 0, sizeof a); memset(b, 0, sizeof b);
    for (n = 0; n < 32 && fread(a[n], 16, 1, stdin) && fread(b[n], 16, 1, stdin); n++)
      fread(wide ? (void*)&s.z[2*n + (n & 1)].u32[n >> 1] : &s.z[2*n].u16[n], wide ? 4 : 2, 1, stdin);
    for (int k = 0; k < 8; k++) {
      for (int i = 0; i < 32; i++) { s.x[0].u16[i] = a[i][k]; s.y[0].u16[i] = b[i][k]; }
      emulate_AMX_FMA16(&s, wide ? 1ull << 62 : 0);
    }
    for (int i = 0; i < n; i++) wide ? fwrite(&s.z[2*i + (i & 1)].u32[i >> 1], 4, 1, stdout) : fwrite(&s.z[2*i].u16[i], 2, 1, stdout);
  } while (n == 32);
}
