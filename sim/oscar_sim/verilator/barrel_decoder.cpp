// Runs blocks through a barrel decoder whose ports are position_*, sums_*, counts_*, job_*, tables_*, feed_*.
// Words of threads come in any order between each other, from any place.
#include "barrel.h"

namespace {

constexpr int SUMS_AT = 30, COUNTS_AT = 36, TOLD_AT = 42;
constexpr uint16_t UNTOLD = 0xFFFF;  // a row that nobody described

struct Decoding : Barrel {
  uint32_t given[THREADS] = {}, offsets[THREADS] = {};  // words; bytes of the last one that are not the block's
  uint64_t fed_at = 0;
  uint32_t room = 0;

  Decoding(Model& m, Block* b, uint32_t n, const Frame* f, uint32_t nf, uint64_t seed)
      : Barrel(m,
               {m.top->position_take, m.top->position_header, m.top->position_read, m.top->position_thread,
                m.top->position_row, m.top->position_given, m.top->position_given_thread},
               b, n, f, nf, seed, COUNTS_AT, 4) {}

  void rest() override { p.feed_valid = 0; }

  void forget() override { room = 0, fed_at = t; }

  void noise() override {
    p.job_bytes = rng.next() & 0x7FFFF, p.job_offset = rng.next() & 15, p.job_first = rng.next() & 127, p.job_last = rng.next() & 127;
    p.feed_thread = rng.below(THREADS), p.position_mean = rng.next() & 15, p.position_data = rng.next();
    for (int i = 0; i < 4; ++i) p.feed_data[i] = rng.next(), p.position_local[i] = rng.next();
  }

  void start(Block& b, int thread) override {
    p.job_bytes = b.size, p.job_seeds = b.seeds, p.job_first = b.first, p.job_last = b.last;
    p.job_raw = b.raw, p.job_offset = offsets[thread] = b.raw ? 0 : rng.below(WORD);
    given[thread] = 0;
    std::fill_n(b.described, b.rows.rows, UNTOLD);
  }

  uint32_t words(const Block& b, int thread) const { return (b.size + offsets[thread] + WORD - 1) / WORD; }

  // A word in two clocks at most, to a thread that has room.
  void drive() override {
    if (t < fed_at + 2) return;
    const int from = rng.below(THREADS);
    for (int i = 0; i < THREADS; ++i) {
      const int thread = (from + i) % THREADS;
      const Block* b = running[thread];
      if (!b || t < b->began + 6 || given[thread] == words(*b, thread) || !(room >> thread & 1)) continue;
      if (!rng.chance(b->stress.idle)) give(*b, thread);
      return;
    }
  }

  void give(const Block& b, int thread) {
    p.feed_valid = 1, p.feed_thread = thread;
    for (uint32_t i = 0; i < WORD; ++i) {
      const int64_t at = int64_t(WORD) * (words(b, thread) - 1 - given[thread]) + WORD - 1 - i - offsets[thread];
      const uint32_t byte = at >= 0 && at < int64_t(b.size) ? b.bytes[at] : rng.next() & 0xFF;
      if (i % 4 == 0) p.feed_data[i / 4] = 0;
      p.feed_data[i / 4] |= byte << 8 * (i % 4);
    }
    ++given[thread], fed_at = moved = t;
  }

  void told(const Turn& turn) override { p.position_mean = turn.block->rows.means[turn.request.row]; }

  static uint32_t lane_of(uint32_t beat, uint32_t i) { return LANES - WIDTH * (beat + 1) + i; }

  void data(const Turn& turn, uint32_t beat) override {
    const Rows& rows = turn.block->rows;
    const uint32_t row = turn.request.row;
    uint32_t four = 0, local[4] = {};
    for (uint32_t i = 0; i < WIDTH; ++i) {
      const uint32_t lane = lane_of(beat, i);
      if (turn.request.header) {
        four |= uint32_t(row + lane < rows.rows ? rows.means[row + lane] : 0) << 4 * i;
        local[i / 2] |= (rng.next() & 0xFFFF) << 16 * (i % 2);
      } else {
        four |= uint32_t(rows.distances[row * LANES + lane] | (rng.next() & 8)) << 4 * i;
        const int16_t* from = turn.block->local;
        local[i / 2] |= uint32_t(from ? uint16_t(from[row * LANES + lane]) : 0) << 16 * (i % 2);
      }
    }
    p.position_data = four;
    for (int i = 0; i < 4; ++i) p.position_local[i] = local[i];
  }

  uint32_t check() override {
    room = p.feed_room;
    const Request& asked = requests[port.thread];
    const Block* b = running[port.thread];
    const bool row = port.take && b && asked.read && !asked.header && asked.row < b->rows.rows;
    return sums() | (row && b->described[asked.row] != UNTOLD ? uint32_t(SUM_TWICE) : 0);
  }

  uint32_t sums() {
    uint32_t fault = 0;
    const Turn* turn = turn_at(SUMS_AT, BEATS);
    if (bool(p.sums_valid) != (turn && turn->has_row())) return SUM_UNASKED;
    if (p.sums_valid) {
      const uint32_t row = turn->request.row, beat = uint32_t(t - turn->at - SUMS_AT);
      if (p.sums_thread != uint32_t(turn->thread) || p.sums_row != row) return SUM_UNASKED;
      for (uint32_t i = 0; i < WIDTH; ++i) {
        const uint32_t total = p.sums_total[i / 2] >> 16 * (i % 2) & 0xFFFF, at = row * LANES + lane_of(beat, i);
        if (at < turn->block->rows.count)
          turn->block->totals[at] = int16_t(total);
        else if (total)
          fault |= SUM_TAIL;
      }
    }
    turn = turn_at(TOLD_AT, 1);
    if (bool(p.sums_described) != (turn && turn->has_row())) return fault | DESCRIBED;
    if (p.sums_described) {
      const uint32_t row = turn->request.row;
      if (p.sums_described_thread != uint32_t(turn->thread) || p.sums_described_row != row) return fault | DESCRIBED;
      turn->block->described[row] = uint16_t(p.sums_row_class | p.sums_row_size << 4 | p.sums_row_top << 7);
    }
    return fault;
  }

  uint32_t finish(Block& b, int thread) override {
    while (sink < number && ended[sink]) ++sink;
    if (given[thread] != words(b, thread)) return BYTES_SHORT;
    for (const Turn& turn : turns)
      if (turn.block == &b && turn.at + TOLD_AT > t) return SPURIOUS;
    return 0;
  }
};

}  // namespace

extern "C" uint64_t barrel_decoder_run(Model* m, Block* blocks, uint32_t n, const Frame* frames, uint32_t nf,
                                       uint64_t seed, uint32_t* done) {
  return Decoding(*m, blocks, n, frames, nf, seed).run(done);
}
