// Runs blocks through a decoder whose ports are position_*, sums_*, counts_*, job_*, tables_*, s_axis_bytes_* and phase.
#include "decoder_block.h"

namespace {

// The bytes of a list of blocks, each backwards in pairs.
struct ByteSource {
  DecoderBlock *blocks, *end, *at;
  uint32_t pair = 0;  // of block `at`, taken so far
  bool valid = false;

  uint32_t pairs() const { return (at->size + 1) / 2; }

  // current: the block at work, or the next one; started: it was started.
  void offer(const DecoderBlock* current, bool started, Random& rng) {
    while (at != end && !valid && pair == pairs() && at < current) ++at, pair = 0;
    if (valid || at == end || pair == pairs()) return;
    const bool may = at < current || (at == current && (started || at->early)) ||
                     (at == current + 1 && at->early);
    valid = may && !rng.chance(at->stress.idle);
  }
  uint32_t data(Random& rng) const {
    if (!valid) return rng.next() & 0xFFFF;
    const uint32_t j = 2 * (pairs() - 1 - pair);
    return uint32_t(at->bytes[j]) << 8 | (j + 1 < at->size ? at->bytes[j + 1] : rng.next() & 0xFF);
  }
  bool last() const { return valid && pair + 1 == pairs(); }
  void take() {
    valid = false;
    if (++pair == pairs() && at + 1 != end) ++at, pair = 0;
  }
  void back(DecoderBlock* to) { at = to, pair = 0, valid = false; }
};

struct DecoderRun {
  Vtop& p;
  Random rng;
  DecoderBlock *block, *end;
  ByteSource source;
  const Frame* frames;
  ReadMemory positions{true};
  SumMemory sums;
  CountMemory counts;
  uint64_t t = 0, began = 0, written_at = 0;
  uint32_t phase, frame = 0, written = 0, frames_count, wait = 0;
  bool running = false, was_idle = false, resetting = false;

  DecoderRun(Model& m, DecoderBlock* blocks, uint32_t n, const Frame* f, uint32_t nf, uint64_t seed)
      : p(*m.top), rng(seed), block(blocks), end(blocks + n), source{blocks, blocks + n, blocks}, frames(f),
        phase(rng.below(32)), frames_count(nf) {}

  // Tables of a frame may be written as soon as the frame before it is the one at work.
  void tables() {
    p.tables_enable = 0;
    p.tables_address = rng.next() & 0xFF, p.tables_data = uint64_t(rng.next()) << 18;
    if (frame == frames_count || frame > block->frame + 1) return;
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
    DecoderBlock& b = *block;
    p.job_start = 1;
    p.job_bank = b.bank, p.job_thinning = b.thinning;
    p.job_values = b.rows.count, p.job_seeds = b.seeds, p.job_first = b.first, p.job_last = b.last;
    p.job_odd = b.size & 1;
    positions.begin(&b.rows);
    sums.begin(b.local, b.totals, b.described, b.rows.rows, b.rows.count);
    counts.begin(b.counts);
    running = true, began = t;
  }

  void inputs() {
    p.rst = resetting, p.phase = phase;
    tables();
    job();
    source.offer(block, running, rng);
    p.s_axis_bytes_tvalid = source.valid, p.s_axis_bytes_tdata = source.data(rng);
    p.s_axis_bytes_tlast = source.valid ? source.last() : rng.next() & 1;
    positions.now(t, rng), sums.now(t, rng);
    p.position_ok = positions.ok, p.position_data = positions.data, p.position_mean = positions.mean;
    p.sums_local = sums.local;
  }

  uint32_t look() {
    const Stress& s = block->stress;
    uint32_t fault = positions.look(t, phase, p.position_take, p.position_header, p.position_row, s.refuse, rng);
    fault |= sums.look(t, p.sums_take, p.sums_row, p.sums_valid, p.sums_total, p.sums_described, p.sums_described_row,
                       p.sums_row_class, p.sums_row_size, p.sums_row_top);
    fault |= counts.look(p.counts_valid, p.counts_address, p.counts_step);
    if (p.s_axis_bytes_tvalid && p.s_axis_bytes_tready) source.take();
    was_idle = p.job_idle && !p.job_start;
    return fault;
  }

  void reset() {
    positions.reset(), sums.reset(), counts.end();
    source.back(block);
    running = was_idle = false, frame = block->frame, written = 0, wait = 4 + rng.below(40);
  }

  // One clock; false when a block ended with a fault.
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
    if (p.job_done) {
      if (!running) fault |= SPURIOUS;
      finish(fault);
    } else if (running && t - began > limit()) {
      fault |= HANG;
    }
    edge(m), advance();
    if (fault && block != end) block->faults |= fault;
    return !fault;
  }

  void finish(uint32_t& fault) {
    DecoderBlock& b = *block;
    b.bad = p.job_bad, b.clocks = uint32_t(t - began), b.taken = positions.takes, b.headers = positions.headers_taken;
    if (!sums.complete() && !b.bad) fault |= DESCRIBED;
    const bool all = source.at > block || source.pair == source.pairs();
    if (!all || (source.at == block && source.valid)) fault |= BYTES_SHORT;
    if (fault) return;
    running = false, ++block, wait = rng.below(3) ? 0 : rng.below(60);
    counts.end();
  }

  uint64_t limit() const {
    return 40ull * 32 * (block->rows.rows * 4 + 80) + 200ull * block->size + 20000;
  }

  void advance() { ++t, phase = (phase + 1) & 31; }
};

}  // namespace

extern "C" uint64_t decoder_run(Model* m, DecoderBlock* blocks, uint32_t n, const Frame* frames, uint32_t nf,
                                uint64_t seed, uint32_t* done) {
  DecoderRun run(*m, blocks, n, frames, nf, seed);
  Vtop& p = *m->top;
  p.rst = 1, p.job_start = 0, p.s_axis_bytes_tvalid = 0, p.tables_enable = 0;
  for (int i = 0; i < 3; ++i) p.phase = run.phase, settle(*m), edge(*m), run.advance();
  while (run.block != run.end && run.step(*m)) {}
  *done = uint32_t(run.block - blocks);
  return run.t;
}
