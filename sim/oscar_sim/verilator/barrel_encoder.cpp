// Runs blocks through a barrel encoder whose ports are source_*, counts_*, job_*, tables_*, drain_*, m_axis_bytes_*.
// Blocks are drained in their order, the oldest one while it is coded.
#include "barrel.h"

namespace {

constexpr int COUNTS_AT = 7;

struct Encoding : Barrel {
  Block* waiting[THREADS] = {};  // whose bytes are not all taken
  uint64_t drain_at = 0;
  bool draining = false, offered = false, drain_idle = false;
  uint32_t held[5] = {};

  Encoding(Model& m, Block* b, uint32_t n, const Frame* f, uint32_t nf, uint64_t seed)
      : Barrel(m,
               {m.top->source_take, m.top->source_header, m.top->source_read, m.top->source_thread,
                m.top->source_row, m.top->source_given, m.top->source_given_thread},
               b, n, f, nf, seed, COUNTS_AT, 1) {}

  void rest() override { p.drain_start = 0; }

  void forget() override {
    for (auto*& each : waiting) each = nullptr;
    draining = offered = drain_idle = false;
  }

  void noise() override {
    p.drain_thread = rng.below(THREADS);
    p.source_row_class = rng.next() & 15, p.source_mean = rng.next() & 15;
    for (int i = 0; i < 5; ++i) p.source_data[i] = rng.next();
    p.source_data[4] &= 0xFFFFFF;
  }

  bool free(int thread) override { return Barrel::free(thread) && !waiting[thread]; }

  void start(Block& b, int thread) override { waiting[thread] = &b, b.given = 0; }

  void drive() override {
    p.m_axis_bytes_tready = !rng.chance(oldest().stress.busy);
    if (draining || !drain_idle || sink >= next) return;
    for (int i = 0; i < THREADS; ++i)
      if (waiting[i] == &blocks[sink]) p.drain_start = 1, p.drain_thread = i, draining = true, drain_at = t;
  }

  void told(const Turn& turn) override {
    const Rows& rows = turn.block->rows;
    p.source_row_class = rows.headers[turn.request.row] & 15, p.source_mean = rows.means[turn.request.row];
  }

  void data(const Turn& turn, uint32_t beat) override {
    const Rows& rows = turn.block->rows;
    uint32_t words[6] = {};
    for (uint32_t i = 0, at = 0; i < WIDTH; ++i, at += 19) {
      const uint32_t lane = WIDTH * beat + i, row = turn.request.row;
      uint32_t value;
      if (turn.request.header)
        value = row + lane < rows.rows ? rows.headers[row + lane] : rng.next() & 0x7FFFF;
      else
        value = uint16_t(rows.values[row * LANES + lane]) | uint32_t(rows.distances[row * LANES + lane]) << 16;
      const uint64_t placed = uint64_t(value) << (at & 31);
      words[at >> 5] |= uint32_t(placed), words[(at >> 5) + 1] |= uint32_t(placed >> 32);
    }
    for (int i = 0; i < 5; ++i) p.source_data[i] = words[i];
  }

  uint32_t check() override {
    const uint32_t fault = bytes();
    drain_idle = p.drain_idle && !p.drain_start;
    if (draining && p.drain_idle && t > drain_at + 1 && ended[sink] && blocks[sink].constant) taken();
    return fault;
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
    Block& b = blocks[sink];
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

  uint32_t finish(Block& b, int) override {
    b.constant = p.job_constant, b.value = p.job_value, b.bits = p.job_bits;
    b.seeds = p.job_seeds, b.first = p.job_first, b.last = p.job_last, b.size = p.job_bytes;
    return 0;
  }
};

}  // namespace

extern "C" uint64_t barrel_encoder_run(Model* m, Block* blocks, uint32_t n, const Frame* frames, uint32_t nf,
                                       uint64_t seed, uint32_t* done) {
  return Encoding(*m, blocks, n, frames, nf, seed).run(done);
}
