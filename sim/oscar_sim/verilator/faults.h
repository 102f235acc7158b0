// What a bench finds wrong, and how it stresses what it drives.
#pragma once
#include "model.h"

// What a unit or a NIC must not do; a bit each. FAULTS of units.py has them in this order.
enum Fault : uint32_t {
  TAKE_UNASKED = 1 << 0,   // a row of no block is asked for
  TAKE_EARLY = 1 << 1,     // a row is asked for too early, or beside a turn's begin
  TAKE_BEYOND = 1 << 2,    // a row that is not there is asked for
  SUM_UNASKED = 1 << 3,    // sums that nobody waits for
  SUM_TWICE = 1 << 4,      // a row is asked for twice to add
  SUM_TAIL = 1 << 5,       // a sum behind the last value
  DESCRIBED = 1 << 6,      // a row is described wrongly
  COUNT_LATE = 1 << 7,     // counted beside its turns
  BYTES_BEYOND = 1 << 8,   // more bytes taken or given than there are
  BYTES_SHORT = 1 << 9,    // a block's end with bytes left
  UNSTABLE = 1 << 10,      // an offer changed before it was taken
  MISFRAMED = 1 << 11,     // tlast or tkeep elsewhere than at the end, or for another peer
  HANG = 1 << 12,
  SPURIOUS = 1 << 13,      // done without a block, or never idle
};

struct Stress {
  uint32_t idle, busy, refuse;  // shares of 65,536: bytes idle, are not taken; memory is not ok
};

