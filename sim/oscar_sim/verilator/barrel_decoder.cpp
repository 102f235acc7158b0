// Runs blocks through a barrel decoder whose ports are position_*, sums_*, counts_*, job_*, tables_*, feed_*.
// Memory answers in any order; words of threads come in any order between each other, from any place.
#include "decoder_block.h"

namespace {

constexpr int THREADS = 8, WIDTH = 8, BEATS = 4, DATA_AT = 2, SUMS_AT = 30, COUNTS_AT = 36, TOLD_AT = 42, WORD = 16;
constexpr int TURNS = 16;  // that may be on their way
constexpr uint64_t PATIENCE = 200000;  // clocks in which nothing happens

struct Request {
  bool open = false, header = false, read = false;
  uint32_t row = 0;
  uint64_t since = 0;
};

// A turn that memory began; block is null where it answered nobody.
struct Turn {
  uint64_t at;
  DecoderBlock* block;
  int thread;
  Request request;
  bool has_row() const { return block && request.read && !request.header; }
};

struct BarrelRun {
  Vtop& p;
  Random rng;
  DecoderBlock* blocks;
  const Frame* frames;
  uint32_t number, frames_count;
  uint32_t next = 0, sink = 0, frame = 0, written = 0;  // blocks started, the oldest that runs; tables
  std::vector<uint8_t> ended;
  DecoderBlock* running[THREADS] = {};
  Request requests[THREADS];
  uint64_t began[THREADS] = {};
  uint32_t given[THREADS] = {}, offsets[THREADS] = {};  // words; bytes of the last one that are not the block's
  Turn turns[TURNS] = {};
  uint64_t t = 0, written_at = 0, started_at = 0, moved = 0, count = 0, fed_at = 0;
  bool was_idle[THREADS] = {}, resetting = false;
  uint32_t phase, wait = 0, room = 0;

  BarrelRun(Model& m, DecoderBlock* b, uint32_t n, const Frame* f, uint32_t nf, uint64_t seed)
      : p(*m.top), rng(seed), blocks(b), frames(f), number(n), frames_count(nf), ended(n), phase(rng.below(16)) {}

  DecoderBlock& oldest() { return blocks[sink < number ? sink : number - 1]; }

  // Tables of the next frame are written while the one before is decoded; its own bank is free then.
  void tables() {
    p.tables_enable = 0, p.tables_address = rng.next() & 0xFF, p.tables_data = uint64_t(rng.next()) << 18;
    if (next == number || frame == frames_count || frame > blocks[next].frame + 1) return;
    for (auto* b : running)
      if (b && b->frame + 1 < frame) return;
    if (written < frames[frame].count) {
      const uint64_t w = frames[frame].writes[written++];
      p.tables_enable = 1, p.tables_address = w >> 50, p.tables_data = w & (1ull << 50) - 1;
    }
    if (written == frames[frame].count) ++frame, written = 0, written_at = t;
  }

  void job() {
    p.job_start = 0, p.job_thread = rng.below(THREADS), p.job_values = rng.next() & 0x3FFFF;
    p.job_bytes = rng.next() & 0x7FFFF, p.job_offset = rng.next() & 15, p.job_first = rng.next() & 127, p.job_last = rng.next() & 127;
    if (wait && wait--) return;
    if (next == number || frame <= blocks[next].frame || t < written_at + 4 || t < started_at + 4) return;
    const int from = rng.below(THREADS);
    for (int i = 0; i < THREADS; ++i) {
      const int thread = (from + i) % THREADS;
      if (running[thread] || !was_idle[thread]) continue;
      DecoderBlock& b = blocks[next++];
      p.job_start = 1, p.job_thread = thread, p.job_values = b.rows.count, p.job_bytes = b.size;
      p.job_bank = b.bank, p.job_thinning = b.thinning;
      p.job_seeds = b.seeds, p.job_first = b.first, p.job_last = b.last;
      p.job_offset = offsets[thread] = rng.below(WORD);
      running[thread] = &b, began[thread] = started_at = moved = t, given[thread] = 0;
      memset(b.counts, 0, COUNTS * sizeof(uint32_t));
      std::fill_n(b.described, b.rows.rows, UNTOLD);
      b.taken = b.headers = 0;
      was_idle[thread] = false;
      if (b.stress.refuse && rng.chance(0x4000)) wait = rng.below(100);
      return;
    }
  }

  uint32_t words(const DecoderBlock& b, int thread) const { return (b.size + offsets[thread] + WORD - 1) / WORD; }

  // A word in two clocks at most, to a thread that has room.
  void feed() {
    idle();
    if (t < fed_at + 2) return;
    const int from = rng.below(THREADS);
    for (int i = 0; i < THREADS; ++i) {
      const int thread = (from + i) % THREADS;
      const DecoderBlock* b = running[thread];
      if (!b || t < began[thread] + 6 || given[thread] == words(*b, thread) || !(room >> thread & 1)) continue;
      if (!rng.chance(b->stress.idle)) give(*b, thread);
      return;
    }
  }

  void give(const DecoderBlock& b, int thread) {
    p.feed_valid = 1, p.feed_thread = thread;
    for (uint32_t i = 0; i < WORD; ++i) {
      const int64_t at = int64_t(WORD) * (words(b, thread) - 1 - given[thread]) + WORD - 1 - i - offsets[thread];
      const uint32_t byte = at >= 0 && at < int64_t(b.size) ? b.bytes[at] : rng.next() & 0xFF;
      if (i % 4 == 0) p.feed_data[i / 4] = 0;
      p.feed_data[i / 4] |= byte << 8 * (i % 4);
    }
    ++given[thread], fed_at = moved = t;
  }

  void idle() {
    p.feed_valid = 0, p.feed_thread = rng.below(THREADS);
    for (int i = 0; i < 4; ++i) p.feed_data[i] = rng.next();
  }

  // An answer in clock 0 of a turn, its data in clocks 2 to 5.
  void memory() {
    p.position_given = 0, p.position_given_thread = rng.below(THREADS), p.position_mean = rng.next() & 15;
    p.position_data = rng.next();
    for (int i = 0; i < 4; ++i) p.position_local[i] = rng.next();
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
    p.position_given = 1, p.position_given_thread = found;
    if (turn.has_row()) p.position_mean = turn.block->rows.means[turn.request.row];
  }

  static uint32_t lane_of(uint32_t beat, uint32_t i) { return LANES - WIDTH * (beat + 1) + i; }

  void data(const Turn& turn, uint32_t beat) {
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

  void inputs() {
    p.rst = resetting, p.phase = phase;
    tables(), job(), feed(), memory();
  }

  uint32_t look() {
    uint32_t fault = take() | sums() | symbols();
    room = p.feed_room;
    for (int i = 0; i < THREADS; ++i) was_idle[i] = p.job_idle >> i & 1;
    if (p.job_start) was_idle[p.job_thread] = false;
    if (p.job_done) fault |= finish();
    return t - moved > PATIENCE ? fault | HANG : fault;
  }

  uint32_t take() {
    if (!p.position_take) return 0;
    const int thread = p.position_thread;
    Request& r = requests[thread];
    if (phase % BEATS || r.open) return TAKE_EARLY;
    if (!running[thread]) return TAKE_UNASKED;
    r = {true, bool(p.position_header), bool(p.position_read), p.position_row, t};
    moved = t;
    DecoderBlock& b = *running[thread];
    ++(r.header ? b.headers : b.taken);
    if (!r.read) return 0;
    if (r.row >= b.rows.rows || (r.header && r.row % LANES)) return TAKE_BEYOND;
    return !r.header && b.described[r.row] != UNTOLD ? uint32_t(SUM_TWICE) : 0;
  }

  // The turn whose clocks from `at` on these are.
  const Turn* turn_at(uint64_t at, uint32_t clocks) const {
    for (const Turn& each : turns)
      if (each.block && t >= each.at + at && t < each.at + at + clocks) return &each;
    return nullptr;
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

  uint32_t symbols() {
    if (!p.counts_valid) return 0;
    const Turn* turn = turn_at(COUNTS_AT, BEATS);
    if (!turn || p.counts_bank != turn->block->bank) return COUNT_LATE;
    for (int i = 0; i < WIDTH; ++i) {
      uint32_t address = 0;
      for (int j = 0; j < 9; ++j) address |= (p.counts_address[(9 * i + j) >> 5] >> ((9 * i + j) & 31) & 1) << j;
      if (p.counts_valid >> i & 1) turn->block->counts[address] += 1u << p.counts_step;
    }
    return 0;
  }

  uint32_t finish() {
    const int thread = p.job_done_thread;
    DecoderBlock* b = running[thread];
    if (!b || requests[thread].open || !(p.job_idle >> thread & 1)) return SPURIOUS;
    if (given[thread] != words(*b, thread)) return BYTES_SHORT;
    for (Turn& turn : turns)
      if (turn.block == b && turn.at + TOLD_AT > t) return SPURIOUS;
    b->bad = p.job_bad, b->clocks = uint32_t(t - began[thread]);
    ended[b - blocks] = 1, running[thread] = nullptr, moved = t;
    while (sink < number && ended[sink]) ++sink;
    return 0;
  }

  // All that had not ended, and what began behind the oldest of it, is decoded again.
  void reset(Model& m) {
    p.job_start = p.feed_valid = p.tables_enable = 0;
    for (int i = 0; i < RESET; ++i) p.phase = phase, p.position_given = 0, settle(m), edge(m), advance();
    next = sink;
    for (uint32_t i = sink; i < number; ++i) ended[i] = 0;
    for (int i = 0; i < THREADS; ++i) running[i] = nullptr, requests[i] = {}, was_idle[i] = false;
    for (Turn& turn : turns) turn.block = nullptr;
    room = 0, frame = blocks[sink].frame, written = 0, wait = 4 + rng.below(40);
    moved = t;
  }

  bool step(Model& m) {
    DecoderBlock* hit = nullptr;
    for (int i = 0; i < THREADS; ++i)
      if (DecoderBlock* b = running[i]; b && b->reset_at >= 0 && !b->resets && t == began[i] + uint64_t(b->reset_at))
        hit = b;
    resetting = hit;
    inputs(), settle(m);
    const uint32_t fault = look();
    if (hit && !fault) return ++hit->resets, reset(m), true;
    edge(m), advance();
    oldest().faults |= fault;
    return !fault;
  }

  void advance() { ++t, phase = (phase + 1) & 15; }
};

}  // namespace

extern "C" uint64_t barrel_decoder_run(Model* m, DecoderBlock* blocks, uint32_t n, const Frame* frames, uint32_t nf,
                                       uint64_t seed, uint32_t* done) {
  BarrelRun run(*m, blocks, n, frames, nf, seed);
  Vtop& p = *m->top;
  p.rst = 1, p.job_start = p.feed_valid = p.position_given = p.tables_enable = 0;
  for (int i = 0; i < RESET; ++i) p.phase = run.phase, settle(*m), edge(*m), run.advance();
  while (run.sink < n && run.step(*m)) {}
  *done = run.sink;
  return run.t;
}
