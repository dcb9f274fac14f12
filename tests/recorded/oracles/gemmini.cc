// Weight-stationary products of 16 by 16 by libgemmini, which Spike loads; its accumulator has c.
#include <bits/stdc++.h>
#define private public
#include <gemmini.cc>
void register_extension(const char*, std::function<extension_t*()>) {}
int main() {
  FILE* out = stdout; stdout = fopen("/dev/null", "w"); // It prints its configuration.
  // Only the state of the unit is made: the rest needs a processor.
  auto g = static_cast<gemmini_t*>(calloc(1, sizeof(gemmini_t)));
  auto& s = *new (&g->gemmini_state) gemmini_state_t;
  g->p = static_cast<processor_t*>(calloc(1, sizeof(processor_t)));
  s.reset(); s.mode = gemmini_state_t::WS; s.a_stride = s.c_stride = 1;
  const reg_t all = reg_t(DIM) << 48 | reg_t(DIM) << 32, none = 0xFFFFFFFF, weights = DIM, add = 3u << 30;
  struct { int8_t a[DIM], b[DIM]; int32_t c; } r[DIM];
  // The records are the diagonal of a tile.
  for (size_t n; memset(r, 0, sizeof r), (n = fread(r, sizeof r[0], DIM, stdin)) > 0;) {
    for (int i = 0; i < DIM; i++)
      for (int k = 0; k < DIM; k++) { s.spad[i][k] = r[i].a[k]; s.spad[weights + k][i] = r[i].b[k]; s.accumulator[i][k] = r[i].c; }
    g->preload(all | weights, all | add); g->compute(all, all | none, true);
    for (size_t i = 0; i < n; i++) fwrite(&s.accumulator[i][i], 4, 1, out);
  }
  fclose(out);
}
