// A verilated block and a table of its ports; included before every harness.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>
#include "Vtop.h"
#include "verilated.h"
#ifdef OSCAR_WAVE
#include "verilated_fst_c.h"
#endif

struct Model {
  VerilatedContext context;
  Vtop* top;
  std::vector<uint8_t> trace;  // what all ports were at each edge, as long as `traced` clocks are left
  uint64_t traced = 0;
#ifdef OSCAR_WAVE
  VerilatedFstC* wave = nullptr;  // where every edge is dumped, if a file is open
  uint64_t now = 0, period = 0;   // ps
#endif
  Model() {
    context.threads(1);  // of a pool, nothing would use it, and its end can hang in a forked process
#ifdef OSCAR_WAVE
    context.traceEverOn(true);
#endif
    top = new Vtop(&context);
  }
  ~Model() {
    top->final();
#ifdef OSCAR_WAVE
    delete wave;  // which closes it
#endif
    delete top;
  }
};

// A rising edge: inputs were set, outputs can be looked at between the two.
inline void settle(Model& m) { m.top->clk = 0, m.top->eval(); }
void record(Model& m);
inline void edge(Model& m) {
  if (m.traced) record(m);
#ifdef OSCAR_WAVE
  if (m.wave) m.wave->dump(m.now);
#endif
  m.top->clk = 1, m.top->eval();
#ifdef OSCAR_WAVE
  if (m.wave) m.wave->dump(m.now + m.period / 2), m.now += m.period;
#endif
}

// xorshift64*: cheap, good enough for stalls.
struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull | 1) { next(), next(); }
  uint32_t next() {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return uint32_t(state * 0x2545F4914F6CDD1Dull >> 32);
  }
  // Whether something of `share` parts in 65,536 happens.
  bool chance(uint32_t share) { return share && (next() & 0xFFFF) < share; }
  uint32_t below(uint32_t n) { return uint32_t(uint64_t(next()) * n >> 32); }
};
