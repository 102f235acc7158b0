// A verilated block and a table of its ports; included before every harness.
#pragma once
#include <cstdint>
#include <cstring>
#include "Vtop.h"
#include "verilated.h"

struct Model {
  VerilatedContext context;
  Vtop* top;
  Model() {
    context.threads(1);  // of a pool, nothing would use it, and its end can hang in a forked process
    top = new Vtop(&context);
  }
  ~Model() {
    top->final();
    delete top;
  }
};

// A rising edge: inputs were set, outputs can be looked at between the two.
inline void settle(Model& m) { m.top->clk = 0, m.top->eval(); }
inline void edge(Model& m) { m.top->clk = 1, m.top->eval(); }

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
