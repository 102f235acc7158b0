// Blocks for encoders; called through ctypes: units.py mirrors the structs.
#pragma once
#include "memory.h"

struct EncoderBlock {
  Rows rows;
  uint8_t* bytes;
  uint32_t* counts;
  uint32_t room, frame, bank, thinning;
  int32_t reset_at;  // clocks behind its start, or -1
  Stress stress;
  uint32_t bad, constant, value, seeds, first, last, size, bits, given;
  uint32_t faults, taken, headers, resets;
  uint32_t clocks;  // from start to done
};

struct Frame {
  const uint64_t* writes;  // data, address << 50; of a barrel encoder address << 40
  uint32_t count, bank;
};
