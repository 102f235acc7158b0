// Runs blocks through a barrel encoder whose ports are source_*, counts_*, job_*, tables_*, drain_*, m_axis_bytes_*.
// Memory answers in any order, blocks are drained in theirs.
#include "encoder_block.h"

namespace {

constexpr int THREADS = 8, WIDTH = 8, BEATS = 4, DATA_AT = 2, COUNTS_AT = 7, WORD = 16, TURNS = 4;
constexpr uint64_t PATIENCE = 200000;  // clocks in which nothing happens

struct Request {
  bool open = false, header = false, read = false;
  uint32_t row = 0;
  uint64_t since = 0;
};

// A turn that memory began; block is null where it answered nobody.
struct Turn {
  uint64_t at;
  EncoderBlock* block;
  Request request;
};

struct BarrelRun {
  Vtop& p;
  Random rng;
  EncoderBlock* blocks;
  const Frame* frames;
  uint32_t number, frames_count;
  uint32_t next = 0, sink = 0, frame = 0, written = 0;  // blocks started, drained; frames and quads written
  std::vector<uint8_t> ended;
  EncoderBlock* running[THREADS] = {};
  EncoderBlock* waiting[THREADS] = {};  // whose bytes are not all taken
  Request requests[THREADS];
  uint64_t began[THREADS] = {};
  Turn turns[TURNS] = {};
  uint64_t t = 0, written_at = 0, moved = 0, drain_at = 0, count = 0;
  bool draining = false, offered = false, was_idle[THREADS] = {}, drain_idle = false, resetting = false;
  uint32_t phase, held[5] = {}, wait = 0;

  BarrelRun(Model& m, EncoderBlock* b, uint32_t n, const Frame* f, uint32_t nf, uint64_t seed)
      : p(*m.top), rng(seed), blocks(b), frames(f), number(n), frames_count(nf), ended(n), phase(rng.below(16)) {}

  const Stress& stress() { return blocks[sink < number ? sink : number - 1].stress; }

  // Tables of the next frame are written while the one before is coded; its own bank is free then.
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
    if (wait && wait--) return;
    if (next == number || frame <= blocks[next].frame || t < written_at + 4) return;
    const int from = rng.below(THREADS);
    for (int i = 0; i < THREADS; ++i) {
      const int thread = (from + i) % THREADS;
      if (running[thread] || waiting[thread] || !was_idle[thread]) continue;
      EncoderBlock& b = blocks[next++];
      p.job_start = 1, p.job_thread = thread, p.job_values = b.rows.count;
      p.job_bank = b.bank, p.job_thinning = b.thinning;
      running[thread] = waiting[thread] = &b, began[thread] = moved = t;
      memset(b.counts, 0, COUNTS * sizeof(uint32_t));
      b.given = b.taken = b.headers = 0;
      was_idle[thread] = false;
      if (b.stress.refuse && rng.chance(0x4000)) wait = rng.below(100);
      return;
    }
  }

  void drain() {
    p.drain_start = 0, p.drain_thread = rng.below(THREADS);
    if (draining || !drain_idle || sink >= next) return;
    for (int i = 0; i < THREADS; ++i)
      if (waiting[i] == &blocks[sink]) p.drain_start = 1, p.drain_thread = i, draining = true, drain_at = t;
  }

  // An answer in clock 0 of a turn, its data in clocks 2 to 5.
  void memory() {
    p.source_given = 0, p.source_given_thread = rng.below(THREADS);
    p.source_row_class = rng.next() & 15, p.source_mean = rng.next() & 15;
    for (int i = 0; i < 5; ++i) p.source_data[i] = rng.next();
    p.source_data[4] &= 0xFFFFFF;
    if (phase % BEATS == 0) answer();
    for (const Turn& turn : turns)
      if (turn.block && turn.request.read && t >= turn.at + DATA_AT && t < turn.at + DATA_AT + BEATS)
        data(turn, uint32_t(t - turn.at - DATA_AT));
  }

  void answer() {
    Turn& turn = turns[count++ % TURNS];
    turn = {t, nullptr, {}};
    const uint32_t refuse = stress().refuse;
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
    Request& r = requests[found];
    turn.block = running[found], turn.request = r;
    r.open = false;
    p.source_given = 1, p.source_given_thread = found;
    const Rows& rows = turn.block->rows;
    if (r.read && !r.header) p.source_row_class = rows.headers[r.row] & 15, p.source_mean = rows.means[r.row];
  }

  void data(const Turn& turn, uint32_t beat) {
    const Rows& rows = turn.block->rows;
    for (uint32_t i = 0; i < WIDTH; ++i) {
      const uint32_t lane = WIDTH * beat + i, row = turn.request.row;
      uint32_t value;
      if (turn.request.header)
        value = row + lane < rows.rows ? rows.headers[row + lane] : 0;
      else
        value = uint16_t(rows.values[row * LANES + lane]) | uint32_t(rows.distances[row * LANES + lane]) << 16;
      put(19 * i, 19, value);
    }
  }

  void put(uint32_t at, uint32_t bits, uint32_t value) {
    for (uint32_t i = 0; i < bits; ++i, ++at) {
      const uint32_t mask = 1u << (at & 31);
      p.source_data[at >> 5] = value >> i & 1 ? p.source_data[at >> 5] | mask : p.source_data[at >> 5] & ~mask;
    }
  }

  void inputs() {
    p.rst = resetting, p.phase = phase;
    tables(), job(), drain(), memory();
    p.m_axis_bytes_tready = !rng.chance(stress().busy);
  }

  uint32_t look() {
    uint32_t fault = take() | symbols() | bytes();
    for (int i = 0; i < THREADS; ++i) was_idle[i] = p.job_idle >> i & 1;
    if (p.job_start) was_idle[p.job_thread] = false;
    drain_idle = p.drain_idle && !p.drain_start;
    if (p.job_done) fault |= finish();
    if (draining && p.drain_idle && t > drain_at + 1 && ended[sink] && blocks[sink].constant) taken();
    return t - moved > PATIENCE ? fault | HANG : fault;
  }

  uint32_t take() {
    if (!p.source_take) return 0;
    const int thread = p.source_thread;
    Request& r = requests[thread];
    if (phase % BEATS || r.open) return TAKE_EARLY;
    if (!running[thread]) return TAKE_UNASKED;
    r = {true, bool(p.source_header), bool(p.source_read), p.source_row, t};
    moved = t;
    EncoderBlock& b = *running[thread];
    ++(r.header ? b.headers : b.taken);
    return r.read && (r.row >= b.rows.rows || (r.header && r.row % LANES)) ? uint32_t(TAKE_BEYOND) : 0;
  }

  uint32_t symbols() {
    if (!p.counts_valid) return 0;
    const Turn* turn = nullptr;
    for (const Turn& each : turns)
      if (each.block && t >= each.at + COUNTS_AT && t < each.at + COUNTS_AT + BEATS) turn = &each;
    if (!turn || p.counts_bank != turn->block->bank) return COUNT_LATE;
    for (int i = 0; i < WIDTH; ++i) {
      uint32_t address = 0;
      for (int j = 0; j < 9; ++j) address |= (p.counts_address[(9 * i + j) >> 5] >> ((9 * i + j) & 31) & 1) << j;
      if (p.counts_valid >> i & 1) turn->block->counts[address] += 1u << p.counts_step;
    }
    return 0;
  }

  uint32_t bytes() {
    uint32_t word[5];
    for (int i = 0; i < 4; ++i) word[i] = p.m_axis_bytes_tdata[i];
    word[4] = p.m_axis_bytes_tkeep | uint32_t(p.m_axis_bytes_tlast) << 16;
    const bool valid = p.m_axis_bytes_tvalid;
    if (offered && (!valid || memcmp(word, held, sizeof held))) return UNSTABLE;
    offered = valid && !p.m_axis_bytes_tready;
    memcpy(held, word, sizeof held);
    if (!valid || offered) return 0;
    if (!draining) return BYTES_BEYOND;
    EncoderBlock& b = blocks[sink];
    const uint32_t keep = word[4] & 0xFFFF, number = keep ? 32 - __builtin_clz(keep) : 0;
    const bool last = word[4] >> 16;
    if (keep + 1 != 1u << number || !number || (!last && number != WORD)) return MISFRAMED;
    if (b.given + number > b.room) return BYTES_BEYOND;
    for (uint32_t i = 0; i < number; ++i) b.bytes[b.given++] = uint8_t(word[i / 4] >> 8 * (i % 4));
    moved = t;
    if (!last) return ended[sink] && b.given >= b.size ? uint32_t(MISFRAMED) : 0;
    if (!ended[sink] || b.given != b.size) return MISFRAMED;
    taken();
    return 0;
  }

  // The bytes of the oldest block are all taken.
  void taken() {
    for (auto*& each : waiting)
      if (each == &blocks[sink]) each = nullptr;
    ++sink, draining = false, moved = t;
  }

  uint32_t finish() {
    const int thread = p.job_done_thread;
    EncoderBlock* b = running[thread];
    if (!b || requests[thread].open || !(p.job_idle >> thread & 1)) return SPURIOUS;
    b->bad = p.job_bad, b->constant = p.job_constant, b->value = p.job_value, b->seeds = p.job_seeds;
    b->first = p.job_first, b->last = p.job_last, b->size = p.job_bytes, b->bits = p.job_bits;
    b->clocks = uint32_t(t - began[thread]);
    ended[b - blocks] = 1, running[thread] = nullptr, moved = t;
    return 0;
  }

  // All that had not ended, or was not taken, is coded again.
  void reset(Model& m) {
    p.job_start = p.drain_start = p.tables_enable = 0;
    for (int i = 0; i < RESET; ++i) p.phase = phase, p.source_given = 0, settle(m), edge(m), advance();
    next = sink;
    for (uint32_t i = sink; i < number; ++i) ended[i] = 0;
    for (int i = 0; i < THREADS; ++i) running[i] = waiting[i] = nullptr, requests[i] = {}, was_idle[i] = false;
    for (Turn& turn : turns) turn.block = nullptr;
    draining = offered = drain_idle = false, frame = blocks[sink].frame, written = 0, wait = 4 + rng.below(40);
    moved = t;
  }

  bool step(Model& m) {
    EncoderBlock* hit = nullptr;
    for (int i = 0; i < THREADS; ++i)
      if (EncoderBlock* b = running[i]; b && b->reset_at >= 0 && !b->resets && t == began[i] + uint64_t(b->reset_at))
        hit = b;
    resetting = hit;
    inputs(), settle(m);
    const uint32_t fault = look();
    if (hit && !fault) return ++hit->resets, reset(m), true;
    edge(m), advance();
    blocks[sink < number ? sink : number - 1].faults |= fault;
    return !fault;
  }

  void advance() { ++t, phase = (phase + 1) & 15; }
};

}  // namespace

extern "C" uint64_t barrel_encoder_run(Model* m, EncoderBlock* blocks, uint32_t n, const Frame* frames, uint32_t nf,
                                       uint64_t seed, uint32_t* done) {
  BarrelRun run(*m, blocks, n, frames, nf, seed);
  Vtop& p = *m->top;
  p.rst = 1, p.job_start = p.drain_start = p.source_given = p.tables_enable = 0, p.m_axis_bytes_tready = 0;
  for (int i = 0; i < RESET; ++i) p.phase = run.phase, settle(*m), edge(*m), run.advance();
  while (run.sink < n && run.step(*m)) {}
  *done = run.sink;
  return run.t;
}
