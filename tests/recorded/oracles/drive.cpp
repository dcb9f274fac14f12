// Records of K a, K b and c from stdin; d to stdout, of a pipeline after CLOCKS edges.
#include "Vtop.h"
#include "verilated.h"
#include <cstdio>
#include <cstdint>
#include <cstring>
#include <vector>
#ifndef K
#define K 4
#endif
#ifndef AT
#define AT uint16_t
#define CT uint16_t
#endif
int main(int n, char** v) {
  VerilatedContext ctx; Vtop t{&ctx};
  AT ab[2*K]; CT c, d;
  while (fread(ab, sizeof ab, 1, stdin) == 1 && fread(&c, sizeof c, 1, stdin) == 1) {
    memset(&t.a, 0, sizeof t.a); memset(&t.b, 0, sizeof t.b);
    memcpy(&t.a, ab, sizeof(AT)*K); memcpy(&t.b, ab + K, sizeof(AT)*K); t.c = c; t.eval();
#ifdef CLOCKS
    for (int i = 0; i < 2 * CLOCKS; i++) { t.clk = i & 1; t.eval(); }
#endif
    d = t.d; fwrite(&d, sizeof d, 1, stdout);
  }
}
