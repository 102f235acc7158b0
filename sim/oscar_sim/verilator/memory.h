// Memory behind a unit's ports, as docs/engine.md has it: rows, sums, counts, bytes; each holds the unit to its rules.
// A model is told what the unit says in a clock (`look`) and gives the unit's inputs of the next (`now`).
#pragma once
#include <algorithm>
#include "model.h"

constexpr int LANES = 32;
constexpr int READ_CLOCKS = 4;  // from a request to the first lane's data
constexpr int TURN = 4;         // clocks that an engine's phase is ahead of that of the one before
constexpr int RAW_AHEAD = 2;    // and that of the raw decoder ahead of the first engine's
constexpr int SUM_CLOCKS = 6;   // from a request to the first total
constexpr int COUNTS = 512;
constexpr int RESET = 64;  // clocks
constexpr uint16_t UNTOLD = 0xFFFF;  // a row that nobody described
constexpr int TOP_AT = 11;           // in a header
constexpr int DESCRIBED_BITS = 0x7F | 15 << TOP_AT;

// What a unit must not do; a bit each. fault_names of units.py has them in this order.
enum Fault : uint32_t {
  TAKE_UNASKED = 1 << 0,   // a row is taken that memory did not allow
  TAKE_EARLY = 1 << 1,     // two rows in less than a slot, or at another phase
  TAKE_BEYOND = 1 << 2,    // no such row, or a header of none
  SUM_UNASKED = 1 << 3,    // a total without its request, or at another time
  SUM_TWICE = 1 << 4,      // a row is asked for again
  SUM_TAIL = 1 << 5,       // a total behind the last value
  DESCRIBED = 1 << 6,      // a descriptor of another row, too early, or missing
  COUNT_LATE = 1 << 7,     // counted after the block's end
  BYTES_BEYOND = 1 << 8,   // more bytes taken or given than there are
  BYTES_SHORT = 1 << 9,    // a block's end with bytes left
  UNSTABLE = 1 << 10,      // an offer changed before it was taken
  MISFRAMED = 1 << 11,     // tlast or tkeep elsewhere than at the end, or for another peer
  HANG = 1 << 12,
  SPURIOUS = 1 << 13,      // done without a block, or never idle
};

// A block in memory. distances, values: 32 a row; headers: class, size << 4, mean << 7, top << 11.
struct Rows {
  const uint8_t* distances;
  const uint8_t* means;
  const uint16_t* headers;
  const int16_t* values;
  uint32_t rows, count;
};

struct Stress {
  uint32_t idle, busy, refuse;  // shares of 65,536: bytes idle, are not taken; memory is not ok
};

// Rows that are read, for a decoder (lanes 31 to 0) or an encoder (0 to 31).
struct ReadMemory {
  bool ok = false;
  uint32_t data = 0, mean = 0;
  const Rows* block = nullptr;
  uint32_t takes = 0, headers_taken = 0;
  bool slots = true;  // the unit works in slots: takes have one phase and need ok before it; otherwise any

  explicit ReadMemory(bool decoding) : decoding_(decoding) {}

  void begin(const Rows* rows) { block = rows, takes = headers_taken = 0; }

  void reset() { fill_ = 0, last_ = -LANES, phase_ = -1; }

  // The inputs of clock t.
  void now(uint64_t t, Random& rng) {
    const Due& due = ring_[t & 63];
    const bool real = due.at == t && fill_;
    const uint32_t junk = rng.next();
    data = real ? due.data : junk & (decoding_ ? 15 : 0x7FFFF);
    mean = real && due.has_mean ? due.mean : junk >> 28;
  }

  // base: the row of memory that the unit calls 0.
  uint32_t look(uint64_t t, int phase, bool take, bool header, uint32_t row, uint32_t refuse, Random& rng,
                uint32_t base = 0) {
    uint32_t fault = 0;
    if (take) {
      if (!shown_ && (slots || !ok)) fault |= TAKE_UNASKED;
      if (int64_t(t) - last_ < LANES || (slots && phase_ >= 0 && phase != phase_)) fault |= TAKE_EARLY;
      last_ = int64_t(t), phase_ = phase;
      if (!block || base + row >= block->rows || (header && row % LANES))
        fault |= TAKE_BEYOND;
      else
        serve(t, header, base + row);
    }
    if (phase == 31) shown_ = ok, change_ = 1 + rng.below(8);
    if (phase == change_) ok = !rng.chance(refuse);
    return fault;
  }

 private:
  struct Due {
    uint64_t at;
    uint32_t data;
    uint8_t mean;
    bool has_mean;
  };
  Due ring_[64] = {};
  bool decoding_, shown_ = false;
  int change_ = 1, phase_ = -1, fill_ = 0;
  int64_t last_ = -LANES;

  void serve(uint64_t t, bool header, uint32_t row) {
    ++(header ? headers_taken : takes), fill_ = 1;
    for (int k = 0; k < LANES; ++k) {
      const uint32_t lane = decoding_ ? LANES - 1 - k : k;
      Due& due = ring_[(t + READ_CLOCKS + k) & 63];
      due.at = t + READ_CLOCKS + k, due.has_mean = !header, due.mean = header ? 0 : block->means[row];
      if (header)
        due.data = row + lane >= block->rows ? 0
                   : decoding_               ? block->means[row + lane]
                                             : block->headers[row + lane];
      else if (decoding_)
        due.data = block->distances[row * LANES + lane];
      else
        due.data = uint16_t(block->values[row * LANES + lane]) | uint32_t(block->distances[row * LANES + lane]) << 16;
    }
  }
};

// Where a decoder adds: local values (all 0 if null), sums. described: class, size << 4, top << 7, or UNTOLD.
struct SumMemory {
  uint32_t local = 0;
  const int16_t* given = nullptr;
  int16_t* totals = nullptr;
  uint16_t* described = nullptr;
  uint16_t* headers = nullptr;  // a NIC's memory has these instead
  uint32_t rows = 0, count = 0, taken = 0;

  void begin(const int16_t* from, int16_t* to, uint16_t* kinds, uint32_t r, uint32_t n) {
    given = from, totals = to, described = kinds, rows = r, count = n, taken = 0;
    std::fill_n(described, rows, UNTOLD);
    head_ = tail_ = told_ = 0, lane_ = LANES - 1;
  }

  void reset() { head_ = tail_ = told_ = 0, lane_ = LANES - 1, fill_ = false, totals = nullptr, last_ = -LANES; }

  bool complete() const { return head_ == tail_ && told_ == head_; }

  void now(uint64_t t, Random& rng) {
    local = fill_ && at_[t & 63] == t ? due_[t & 63] : rng.next() & 0xFFFF;
  }

  // base: the row of memory that the unit calls 0; adopt: local values are 0.
  uint32_t look(uint64_t t, bool take, uint32_t row, bool valid, uint32_t total, bool tells, uint32_t told_row,
                uint32_t row_class, uint32_t row_size, uint32_t row_top, uint32_t base = 0,
                bool adopt = false) {
    uint32_t fault = 0;
    if (tells) {
      told_row += open_[told_ & 7].base;
      if (told_ == head_ || open_[told_ & 7].row != told_row || told_row >= rows)
        fault |= DESCRIBED;
      else if (headers)
        headers[told_row] = uint16_t((headers[told_row] & ~DESCRIBED_BITS) | row_class | row_size << 4 | row_top << TOP_AT);
      else
        described[told_row] = uint16_t(row_class | row_size << 4 | row_top << 7);
      if (told_ != head_) ++told_;
    }
    if (take) {
      row += base;
      if (int64_t(t) - last_ < LANES) fault |= TAKE_EARLY;
      last_ = int64_t(t);
      if (!totals || row >= rows) return fault | TAKE_BEYOND;
      if (tail_ - told_ == 8) return fault | DESCRIBED;
      open_[tail_++ & 7] = {row, base, t};
      ++taken, fill_ = true;
      for (uint64_t k = 0; k < LANES; ++k) {
        at_[(t + READ_CLOCKS + k) & 63] = t + READ_CLOCKS + k;
        due_[(t + READ_CLOCKS + k) & 63] = given && !adopt ? uint16_t(given[row * LANES + LANES - 1 - k]) : 0;
      }
    }
    const bool due = head_ != tail_ && t == open_[head_ & 7].clock + SUM_CLOCKS + (LANES - 1 - lane_);
    if (valid != due) fault |= SUM_UNASKED;
    if (valid && head_ != tail_) {
      const uint32_t at = open_[head_ & 7].row * LANES + lane_;
      if (at < count)
        totals[at] = int16_t(total);
      else if (total)
        fault |= SUM_TAIL;
    }
    if ((valid || due) && head_ != tail_ && lane_-- == 0) lane_ = LANES - 1, ++head_;
    return fault;
  }

 private:
  struct Open {
    uint32_t row, base;
    uint64_t clock;
  };
  Open open_[8] = {};
  uint32_t head_ = 0, tail_ = 0, told_ = 0;  // rows asked for; those up to head_ are complete
  int lane_ = LANES - 1;
  bool fill_ = false;
  int64_t last_ = -LANES;
  uint64_t at_[64] = {};
  uint16_t due_[64] = {};
};

// What a unit counts, from start to done.
struct CountMemory {
  uint32_t* counts = nullptr;

  void begin(uint32_t* to) { counts = to, memset(counts, 0, COUNTS * sizeof(uint32_t)); }

  void end() { counts = nullptr; }

  uint32_t look(bool valid, uint32_t address, uint32_t step) {
    if (!valid) return 0;
    if (!counts) return COUNT_LATE;
    counts[address] += 1u << step;
    return 0;
  }
};
