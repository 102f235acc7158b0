// Runs blocks through an encoder whose ports are source_*, counts_*, job_*, tables_*, m_axis_bytes_* and phase.
#include "encoder_block.h"

namespace {

struct EncoderRun {
  Vtop& p;
  Random rng;
  EncoderBlock *first, *block, *end, *sink;
  const Frame* frames;
  ReadMemory rows{false};
  CountMemory counts;
  uint64_t t = 0, began = 0, written_at = 0, moved = 0;
  uint32_t phase, frame = 0, written = 0, frames_count, wait = 0, held = 0;
  bool running = false, was_idle = false, resetting = false, offered = false;

  EncoderRun(Model& m, EncoderBlock* blocks, uint32_t n, const Frame* f, uint32_t nf, uint64_t seed)
      : p(*m.top), rng(seed), first(blocks), block(blocks), end(blocks + n), sink(blocks), frames(f),
        phase(rng.below(32)), frames_count(nf) {}

  void tables() {
    p.tables_enable = 0;
    p.tables_address = rng.next() & 0xFF, p.tables_data = uint64_t(rng.next()) << 18;
    if (block == end || frame == frames_count || frame > block->frame + 1) return;
    if (written < frames[frame].count) {
      if (rng.chance(0x2000)) return;
      const uint64_t w = frames[frame].writes[written++];
      p.tables_enable = 1, p.tables_address = w >> 50, p.tables_data = w & (1ull << 50) - 1;
    }
    if (written == frames[frame].count) ++frame, written = 0, written_at = t;
  }

  void job() {
    p.job_start = 0;
    if (running || !was_idle || block == end || frame <= block->frame || t < written_at + 4 || wait) {
      if (wait) --wait;
      return;
    }
    EncoderBlock& b = *block;
    p.job_start = 1;
    p.job_bank = b.bank, p.job_thinning = b.thinning;
    p.job_values = b.rows.count;
    rows.begin(&b.rows);
    counts.begin(b.counts);
    b.given = 0;
    running = true, began = moved = t;
  }

  void inputs() {
    p.rst = resetting, p.phase = phase;
    tables();
    job();
    p.m_axis_bytes_tready = !rng.chance((block == end ? block[-1] : *block).stress.busy);
    rows.now(t, rng);
    p.source_ok = rows.ok, p.source_data = rows.data, p.source_mean = rows.mean;
  }

  uint32_t look() {
    const Stress& s = (block == end ? block[-1] : *block).stress;
    uint32_t fault = rows.look(t, phase, p.source_take, p.source_header, p.source_row, s.refuse, rng);
    fault |= counts.look(p.counts_valid, p.counts_address, p.counts_step);
    was_idle = p.job_idle && !p.job_start;
    return fault | bytes();
  }

  uint32_t bytes() {
    const bool valid = p.m_axis_bytes_tvalid;
    const uint32_t word = p.m_axis_bytes_tdata | uint32_t(p.m_axis_bytes_tkeep) << 16 |
                          uint32_t(p.m_axis_bytes_tlast) << 18;
    if (offered && !resetting && (!valid || word != held)) return UNSTABLE;
    offered = valid && !p.m_axis_bytes_tready, held = word;
    if (!valid || !p.m_axis_bytes_tready) return 0;
    while (sink < block && sink->constant) ++sink;
    if (sink == end || (sink == block && !running)) return BYTES_BEYOND;
    const bool last = word >> 18 & 1;
    const uint32_t keep = word >> 16 & 3;
    if (keep != 3 && (keep != 1 || !last)) return MISFRAMED;
    for (uint32_t i = 0; i < (keep == 3 ? 2u : 1u); ++i) {
      if (sink->given == sink->room) return BYTES_BEYOND;
      sink->bytes[sink->given++] = uint8_t(word >> 8 * i);
    }
    moved = t;
    if (last) {
      if (sink < block && sink->given != sink->size) return MISFRAMED;
      ++sink;
    } else if (sink < block && sink->given == sink->size) {
      return MISFRAMED;
    }
    return 0;
  }

  // Blocks whose bytes were not all taken are coded again, too.
  void reset() {
    rows.reset(), counts.end();
    while (sink < block && sink->constant) ++sink;
    if (sink > block) sink = block;
    block = sink;
    if (block != end) block->given = 0;
    running = was_idle = offered = false, frame = block->frame, written = 0, wait = 4 + rng.below(40);
  }

  bool step(Model& m) {
    resetting = running && block->reset_at >= 0 && t == began + uint64_t(block->reset_at) && !block->resets;
    inputs();
    settle(m);
    uint32_t fault = look();
    if (resetting) {
      for (int i = 0; i < RESET; ++i) p.phase = phase, settle(m), edge(m), advance();
      ++block->resets;
      return reset(), true;
    }
    EncoderBlock& b = block == end ? block[-1] : *block;
    if (p.job_done) {
      if (!running) fault |= SPURIOUS;
      else finish();
    } else if (t - moved > 40ull * 32 * (b.rows.rows * 4 + 80) + 200ull * b.room + 20000) {
      fault |= HANG;
    }
    edge(m), advance();
    b.faults |= fault;
    return !fault && !b.bad;
  }

  void finish() {
    EncoderBlock& b = *block;
    b.bad = p.job_bad, b.constant = p.job_constant, b.value = p.job_value, b.seeds = p.job_seeds;
    b.first = p.job_first, b.last = p.job_last, b.size = p.job_bytes, b.bits = p.job_bits;
    b.clocks = uint32_t(t - began), b.taken = rows.takes, b.headers = rows.headers_taken;
    running = false, moved = t, ++block, wait = rng.below(3) ? 0 : rng.below(60);
    counts.end();
  }

  // All blocks are done and their bytes were taken.
  bool over() {
    while (sink < block && sink->constant) ++sink;
    return block == end && sink == end;
  }

  void advance() { ++t, phase = (phase + 1) & 31; }
};

}  // namespace

extern "C" uint64_t encoder_run(Model* m, EncoderBlock* blocks, uint32_t n, const Frame* frames, uint32_t nf,
                                uint64_t seed, uint32_t* done) {
  EncoderRun run(*m, blocks, n, frames, nf, seed);
  Vtop& p = *m->top;
  p.rst = 1, p.job_start = 0, p.m_axis_bytes_tready = 0, p.tables_enable = 0;
  for (int i = 0; i < 3; ++i) p.phase = run.phase, settle(*m), edge(*m), run.advance();
  while (!run.over() && run.step(*m)) {}
  *done = uint32_t(run.block - blocks);
  return run.t;
}
