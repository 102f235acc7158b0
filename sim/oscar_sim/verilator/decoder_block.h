// Blocks for decoders; called through ctypes: units.py mirrors the structs.
#pragma once
#include "memory.h"

struct DecoderBlock {
  Rows rows;
  const uint8_t* bytes;
  const int16_t* local;
  int16_t* totals;
  uint16_t* described;
  uint32_t* counts;
  uint32_t size, frame, bank, thinning, seeds, first, last;
  int32_t reset_at;  // clocks behind its start, or -1
  uint32_t early;    // its bytes are on offer while the block before is decoded
  Stress stress;
  uint32_t bad, faults, taken, headers, resets;
  uint32_t clocks;  // from start to done
};

struct Frame {
  const uint64_t* writes;  // data, address << 50
  uint32_t count, bank;
};
