// Memory behind a unit's ports, as docs/engine.md has it: rows, sums, counts, bytes; each holds the unit to its rules.
// A model is told what the unit says in a clock (`look`) and gives the unit's inputs of the next (`now`).
#pragma once
#include <algorithm>
#include "faults.h"

constexpr int LANES = 32;
constexpr int READ_CLOCKS = 4;  // from a request to the first lane's data
constexpr int TURN = 4;         // clocks that an engine's phase is ahead of that of the one before
constexpr int SUM_CLOCKS = 6;   // from a request to the first total
constexpr int COUNTS = 512;
constexpr int RESET = 64;  // clocks
constexpr uint16_t UNTOLD = 0xFFFF;  // a row that nobody described

// A block in memory. distances, values: 32 a row; headers: class, size << 4, mean << 7, top << 11.
struct Rows {
  const uint8_t* distances;
  const uint8_t* means;
  const uint16_t* headers;
  const int16_t* values;
  uint32_t rows, count;
};

// Rows that are read, for a decoder (lanes 31 to 0) or an encoder (0 to 31).
struct ReadMemory {
  bool ok = false;
  uint32_t data = 0, mean = 0;
  const Rows* block = nullptr;
  uint32_t takes = 0, headers_taken = 0;

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

  uint32_t look(uint64_t t, int phase, bool take, bool header, uint32_t row, uint32_t refuse, Random& rng) {
    uint32_t fault = 0;
    if (take) {
      if (!shown_) fault |= TAKE_UNASKED;
      if (int64_t(t) - last_ < LANES || (phase_ >= 0 && phase != phase_)) fault |= TAKE_EARLY;
      last_ = int64_t(t), phase_ = phase;
      if (!block || row >= block->rows || (header && row % LANES))
        fault |= TAKE_BEYOND;
      else
        serve(t, header, row);
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

  uint32_t look(uint64_t t, bool take, uint32_t row, bool valid, uint32_t total, bool tells, uint32_t told_row,
                uint32_t row_class, uint32_t row_size, uint32_t row_top) {
    uint32_t fault = 0;
    if (tells) {
      if (told_ == head_ || open_[told_ & 7].row != told_row || told_row >= rows)
        fault |= DESCRIBED;
      else
        described[told_row] = uint16_t(row_class | row_size << 4 | row_top << 7);
      if (told_ != head_) ++told_;
    }
    if (take) {
      if (int64_t(t) - last_ < LANES) fault |= TAKE_EARLY;
      last_ = int64_t(t);
      if (!totals || row >= rows) return fault | TAKE_BEYOND;
      if (tail_ - told_ == 8) return fault | DESCRIBED;
      open_[tail_++ & 7] = {row, t};
      ++taken, fill_ = true;
      for (uint64_t k = 0; k < LANES; ++k) {
        at_[(t + READ_CLOCKS + k) & 63] = t + READ_CLOCKS + k;
        due_[(t + READ_CLOCKS + k) & 63] = given ? uint16_t(given[row * LANES + LANES - 1 - k]) : 0;
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
    uint32_t row;
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
