// What the benches of barrel units share: threads with blocks, rows that memory gives in any order, tables, counts,
// resets. Each holds its unit to the rules of docs/develop/engine.md.
#pragma once
#include <algorithm>
#include "faults.h"

constexpr int LANES = 32, COUNTS = 512;
constexpr int THREADS = 8, WIDTH = 8, SAMPLED = 2, SAMPLE = 4, BEATS = 4, DATA_AT = 2, WORD = 16;
constexpr int TABLE_BITS = 50;
constexpr int TURNS = 16;  // that may be on their way
constexpr int RESET = 64;  // clocks
constexpr uint64_t PATIENCE = 200000;  // clocks in which nothing happens

// A block in memory. distances, values: 32 a row; headers: class, size << 4, mean << 7, top << 11.
struct Rows {
  const uint8_t* distances;
  const uint8_t* means;
  const uint16_t* headers;
  const int16_t* values;
  uint32_t rows, count;
};

// A block for a unit, and what came of it; called through ctypes: units.py mirrors the structs.
struct Block {
  Rows rows;
  uint8_t* bytes;
  const int16_t* local;  // what a decoder adds to (all 0 if null), and the sums
  int16_t* totals;
  uint16_t* described;  // class, size << 4, top << 7 of the sums, or UNTOLD
  uint32_t* counts;
  uint32_t room, given;  // bytes that an encoder may give, and those that it gave
  uint32_t frame, bank;
  uint32_t size, raw, seeds, first, last;  // of the directory: a decoder is told, an encoder tells
  uint32_t bad, constant, value, bits;
  int32_t reset_at;  // clocks behind its start, or -1
  Stress stress;
  uint32_t faults, resets;
  uint32_t began, ended;  // clocks
};

struct Frame {
  const uint64_t* writes;  // quads of its tables: data, address << TABLE_BITS
  uint32_t count, bank;
};

struct Request {
  bool open = false, header = false, read = false;
  uint32_t row = 0;
  uint64_t since = 0;
};

// A turn that memory began; block is null where it answered nobody.
struct Turn {
  uint64_t at;
  Block* block;
  int thread;
  Request request;
  bool has_row() const { return block && request.read && !request.header; }
};

// By which a unit asks for rows.
struct RowPort {
  CData &take, &header, &read, &thread;
  SData& row;
  CData &given, &given_thread;
};

struct Barrel {
  Model& m;
  Vtop& p;
  RowPort port;
  Random rng;
  Block* blocks;
  const Frame* frames;
  const uint32_t number, frames_count;
  const int counts_at, gap;  // clock of a turn's first counts; clocks between two starts
  uint32_t next = 0, sink = 0, frame = 0, written = 0;  // blocks started, the oldest that is not over; tables
  std::vector<uint8_t> ended;
  Block* running[THREADS] = {};
  Request requests[THREADS];
  Turn turns[TURNS] = {};
  uint64_t t = 0, written_at = 0, started_at = 0, moved = 0, count = 0;
  bool was_idle[THREADS] = {}, resetting = false;
  uint32_t phase, wait = 0;

  Barrel(Model& model, RowPort rows, Block* b, uint32_t n, const Frame* f, uint32_t nf, uint64_t seed, int counts,
         int starts)
      : m(model), p(*m.top), port(rows), rng(seed), blocks(b), frames(f), number(n), frames_count(nf),
        counts_at(counts), gap(starts), ended(n), phase(rng.below(16)) {}
  virtual ~Barrel() {}

  virtual void rest() = 0;                                  // no input is a strobe
  virtual void forget() = 0;                                // what is under way, but for threads
  virtual void drive() = 0;                                 // inputs of bytes
  virtual void noise() = 0;                                 // inputs that need not hold
  virtual bool free(int thread) { return !running[thread] && was_idle[thread]; }
  virtual void start(Block& b, int thread) = 0;             // fields of a job
  virtual void told(const Turn& turn) = 0;                  // with the answer
  virtual void data(const Turn& turn, uint32_t beat) = 0;   // eight lanes
  virtual uint32_t check() = 0;                             // outputs of its own
  virtual uint32_t finish(Block& b, int thread) = 0;        // a block at its `done`

  Block& oldest() { return blocks[sink < number ? sink : number - 1]; }

  // Tables of the next frame are written while the one before is coded; its own bank is free then.
  void tables() {
    if (next == number || frame == frames_count || frame > blocks[next].frame + 1) return;
    for (auto* b : running)
      if (b && b->frame + 1 < frame) return;
    if (written < frames[frame].count) {
      const uint64_t w = frames[frame].writes[written++];
      p.tables_enable = 1, p.tables_address = w >> TABLE_BITS, p.tables_data = w & ((1ull << TABLE_BITS) - 1);
    }
    if (written == frames[frame].count) ++frame, written = 0, written_at = t;
  }

  void job() {
    if (wait && wait--) return;
    if (next == number || frame <= blocks[next].frame || t < written_at + 4 || t < started_at + gap) return;
    const int from = rng.below(THREADS);
    for (int i = 0; i < THREADS; ++i) {
      const int thread = (from + i) % THREADS;
      if (!free(thread)) continue;
      Block& b = blocks[next++];
      p.job_start = 1, p.job_thread = thread, p.job_values = b.rows.count;
      p.job_bank = b.bank;
      running[thread] = &b, started_at = moved = t, b.began = uint32_t(t), was_idle[thread] = false;
      memset(b.counts, 0, COUNTS * sizeof(uint32_t));
      start(b, thread);
      if (b.stress.refuse && rng.chance(0x4000)) wait = rng.below(100);
      return;
    }
  }

  // An answer in clock 0 of a turn, its data in clocks 2 to 5.
  void memory() {
    if (phase % BEATS == 0) answer();
    for (const Turn& turn : turns)
      if (turn.block && turn.request.read && t >= turn.at + DATA_AT && t < turn.at + DATA_AT + BEATS)
        data(turn, uint32_t(t - turn.at - DATA_AT));
  }

  void answer() {
    Turn& turn = turns[count++ % TURNS];
    turn = {t, nullptr, 0, {}};
    const uint32_t refuse = oldest().stress.refuse;
    if (rng.chance(refuse)) return;
    int found = -1;
    const int from = refuse ? rng.below(THREADS) : 0;
    for (int i = 0; i < THREADS; ++i) {
      const int thread = (from + i) % THREADS;
      const Request& r = requests[thread];
      if (r.open && r.since + BEATS <= t && (found < 0 || (!refuse && r.since < requests[found].since)))
        found = thread;
    }
    if (found < 0) return;
    turn.block = running[found], turn.thread = found, turn.request = requests[found];
    requests[found].open = false;
    port.given = 1, port.given_thread = found;
    if (turn.has_row()) told(turn);
  }

  void inputs() {
    rest(), noise();
    p.rst = resetting, p.phase = phase, p.job_start = p.tables_enable = port.given = 0;
    p.tables_address = rng.next() & 0xFF, p.tables_data = uint64_t(rng.next()) << 18;
    port.given_thread = rng.below(THREADS), p.job_thread = rng.below(THREADS), p.job_values = rng.next() & 0x3FFFF;
    tables(), job(), drive(), memory();
  }

  uint32_t look() {
    uint32_t fault = take() | symbols() | check();
    for (int i = 0; i < THREADS; ++i) was_idle[i] = p.job_idle >> i & 1;
    if (p.job_start) was_idle[p.job_thread] = false;
    if (p.job_done) fault |= over();
    return t - moved > PATIENCE ? fault | HANG : fault;
  }

  uint32_t take() {
    if (!port.take) return 0;
    const int thread = port.thread;
    Request& r = requests[thread];
    if (phase % BEATS || r.open) return TAKE_EARLY;
    if (!running[thread]) return TAKE_UNASKED;
    r = {true, bool(port.header), bool(port.read), port.row, t};
    moved = t;
    const bool beyond = r.row >= running[thread]->rows.rows || (r.header && r.row % LANES);
    return r.read && beyond ? uint32_t(TAKE_BEYOND) : 0;
  }

  // The turn whose clocks from `at` on these are.
  const Turn* turn_at(uint64_t at, uint32_t clocks) const {
    for (const Turn& each : turns)
      if (each.block && t >= each.at + at && t < each.at + at + clocks) return &each;
    return nullptr;
  }

  uint32_t symbols() {
    if (!p.counts_valid) return 0;
    const Turn* turn = turn_at(counts_at, BEATS);
    if (!turn || p.counts_bank != turn->block->bank) return COUNT_LATE;
    for (uint32_t i = 0; i < SAMPLED; ++i)
      if (p.counts_valid >> i & 1) turn->block->counts[p.counts_address >> 9 * i & 511] += SAMPLE;
    return 0;
  }

  uint32_t over() {
    const int thread = p.job_done_thread;
    Block* b = running[thread];
    if (!b || requests[thread].open || !(p.job_idle >> thread & 1)) return SPURIOUS;
    b->bad = p.job_bad, b->ended = uint32_t(t);
    ended[b - blocks] = 1, running[thread] = nullptr, moved = t;
    return finish(*b, thread);
  }

  // All that is not over is coded again.
  void reset() {
    rest(), p.rst = 1, p.job_start = p.tables_enable = port.given = 0;
    for (int i = 0; i < RESET; ++i) p.phase = phase, settle(m), edge(m), advance();
    next = sink;
    for (uint32_t i = sink; i < number; ++i) ended[i] = 0;
    for (int i = 0; i < THREADS; ++i) running[i] = nullptr, requests[i] = {}, was_idle[i] = false;
    for (Turn& turn : turns) turn.block = nullptr;
    forget();
    frame = oldest().frame, written = 0, wait = t > RESET ? 4 + rng.below(40) : 0;
    moved = t;
  }

  bool step() {
    Block* hit = nullptr;
    for (auto* b : running)
      if (b && b->reset_at >= 0 && !b->resets && t == b->began + uint64_t(b->reset_at)) hit = b;
    resetting = hit;
    inputs(), settle(m);
    const uint32_t fault = look();
    if (hit && !fault) return ++hit->resets, reset(), true;
    edge(m), advance();
    oldest().faults |= fault;
    return !fault;
  }

  void advance() { ++t, phase = (phase + 1) & 15; }

  // Run all blocks, until one has a fault; return the clocks. done: blocks that were over before.
  uint64_t run(uint32_t* done) {
    reset();
    while (sink < number && step()) {}
    *done = sink;
    return t;
  }
};
