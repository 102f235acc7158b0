// Drives a Verilator model of nic_lane: streams in and out of memory, with idle gaps, back-pressure and reset.
// Called through ctypes (lane.py, which mirrors struct Job).
#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>
#include "model.h"

// Reads of the payload that may wait for their answers (docs/hardware.md, asc_decoder).
constexpr size_t OUTSTANDING = 11;

extern "C" {

struct Job {
  // command
  uint32_t decode, add, encode, count;
  uint32_t dec_fresh, dec_width, dec_shift, dec_words;
  uint32_t enc_fresh, enc_width, enc_shift, out_cap;
  const uint8_t* classes;
  const uint16_t* local;
  const uint16_t* payload;
  const uint16_t* dec_hist;
  const uint16_t* enc_hist;
  // results
  uint16_t* sums;
  uint16_t* out;
  uint16_t* dec_hist_out;
  uint16_t* enc_hist_out;
  uint64_t clocks, first_clock, last_clock;
  uint32_t out_words, dec_error, dec_new_shift, enc_new_shift;
  uint32_t redos, sums_taken;
  uint64_t strobes[5];
  // stress: shares of 65,536 in which a source idles and a sink is not ready; a clock to reset at, or -1
  uint32_t idle, busy;
  uint64_t seed;
  int64_t reset_at;
  uint64_t limit;
};

struct Lane {
  VerilatedContext context;
  Vtop* top;
  uint64_t rng = 1;
};

// What lane.py calls them. OVERRUN: more came out than there can be, or was asked for; UNSTABLE: an offer changed
// before it was taken; MISFRAMED: tlast elsewhere than with the last word; UNSAVED: not exactly the tables that a
// frame without error leaves.
enum Status { DONE, LIMIT, RESET, OVERRUN, UNSTABLE, MISFRAMED, UNSAVED };

}  // extern "C"

namespace {

bool chance(Lane& lane, uint32_t share) {
  if (!share) return false;
  lane.rng ^= lane.rng << 13;
  lane.rng ^= lane.rng >> 7;
  lane.rng ^= lane.rng << 17;
  return (lane.rng >> 40 & 0xFFFF) < share;
}

// A source of AXI4-Stream words: decides once a clock whether it offers its next word, and keeps an offer.
struct Source {
  bool offered = false;
  bool next(Lane& lane, bool more, uint32_t idle) {
    if (!more) return offered = false;
    if (!offered) offered = !chance(lane, idle);
    return offered;
  }
  void taken() { offered = false; }
};

// What the lane offered and was not taken: it must still be there in the next clock.
struct Offer {
  bool held = false;
  uint32_t what = 0;
  bool kept(bool valid, bool ready, uint32_t word) {
    const bool same = !held || (valid && word == what);
    held = valid && !ready, what = word;
    return same;
  }
};

struct Fetch {
  uint64_t due;
  uint16_t data;
};

}  // namespace

extern "C" {

Lane* lane_new() {
  Lane* lane = new Lane;
  lane->context.threads(1);  // of a pool, nothing would use it, and its end can hang in a forked process
  lane->top = new Vtop(&lane->context);
  Vtop& p = *lane->top;
  p.clk = 0;
  p.rst = 1;
  p.start = 0;
  for (int i = 0; i < 4; ++i) {
    p.clk = 0, p.eval();
    p.clk = 1, p.eval();
  }
  p.rst = 0;
  p.clk = 0, p.eval();
  return lane;
}

void lane_delete(Lane* lane) {
  delete lane->top;
  delete lane;
}

int lane_run(Lane* lane, Job* job) {
  Vtop& p = *lane->top;
  if (job->seed) lane->rng = job->seed * 0x9E3779B97F4A7C15ull | 1;
  Source cls, loc, redo, tables;
  Offer sum_offer, word_offer, read_offer, redo_offer, state_offer;
  std::deque<Fetch> fetches;
  uint32_t cls_at = 0, loc_at = 0, redo_at = 0, redo_end = 0, in_at[2] = {0, 0}, out_at[2] = {0, 0};
  bool dec_done = !job->decode, enc_done = !job->encode, started = false, ended = false;
  job->out_words = job->sums_taken = job->redos = 0;
  job->dec_error = 0, job->first_clock = job->last_clock = 0;
  for (auto& s : job->strobes) s = 0;
  const bool keep = job->decode;
  int status = LIMIT;
  p.op_decode = job->decode, p.op_add = job->add, p.op_encode = job->encode, p.op_keep = keep;
  p.count = job->count;
  p.dec_fresh = job->dec_fresh, p.dec_width = job->dec_width, p.dec_shift = job->dec_shift;
  p.dec_words = job->dec_words;
  p.enc_fresh = job->enc_fresh, p.enc_width = job->enc_width, p.enc_shift = job->enc_shift;
  uint64_t clock = 0;
  for (; clock < job->limit; ++clock) {
    const bool reset = int64_t(clock) == job->reset_at;
    p.rst = reset;
    p.start = !started && p.idle;
    // what the sources offer and whether the sinks take: decided before this clock's edge
    p.s_axis_class_tvalid = cls.next(*lane, cls_at < job->count, job->idle);
    p.s_axis_class_tdata = cls_at < job->count ? job->classes[cls_at] : 0;
    p.s_axis_class_tlast = cls_at + 1 == job->count;
    const bool wants_local = job->add || !job->decode;
    p.s_axis_local_tvalid = loc.next(*lane, wants_local && loc_at < job->count, job->idle);
    p.s_axis_local_tdata = wants_local && loc_at < job->count ? job->local[loc_at] : 0;
    p.s_axis_local_tlast = loc_at + 1 == job->count;
    p.s_axis_redo_tvalid = redo.next(*lane, redo_at < redo_end, job->idle);
    if (redo_at < redo_end) {
      const uint16_t value = job->decode ? job->sums[redo_at] : job->local[redo_at];
      p.s_axis_redo_tdata = uint32_t(job->classes[redo_at]) << 16 | value;
      p.s_axis_redo_tlast = redo_at + 1 == redo_end;
    }
    p.redo_ready = redo_at == redo_end && !chance(*lane, job->busy);
    p.rd_ready = !chance(*lane, job->busy);
    p.rd_data_valid = !fetches.empty() && fetches.front().due <= clock;
    p.rd_data = p.rd_data_valid ? fetches.front().data : 0;
    p.m_axis_sum_tready = !chance(*lane, job->busy);
    p.m_axis_payload_tready = !chance(*lane, job->busy);
    p.m_axis_state_tready = !chance(*lane, job->busy);
    p.clk = 0;
    p.eval();
    const int client = p.state_client & 1;
    const uint16_t* hist = client ? job->enc_hist : job->dec_hist;
    p.s_axis_state_tvalid = tables.next(*lane, hist && in_at[client] < 256, job->idle);
    p.s_axis_state_tdata = hist && in_at[client] < 256 ? hist[in_at[client]] : 0;
    p.s_axis_state_tlast = in_at[client] == 255;
    p.eval();
    for (int i = 0; i < 5; ++i) job->strobes[i] += p.strobes >> i & 1;
    // what was on offer is still there
    const uint32_t word = uint32_t(p.m_axis_payload_tlast) << 16 | p.m_axis_payload_tdata;
    const uint32_t sum = uint32_t(p.m_axis_sum_tlast) << 16 | p.m_axis_sum_tdata;
    const uint32_t row = uint32_t(client) << 11 | uint32_t(p.m_axis_state_tlast) << 10 | p.m_axis_state_tdata;
    bool kept = word_offer.kept(p.m_axis_payload_tvalid, p.m_axis_payload_tready, word);
    kept = sum_offer.kept(p.m_axis_sum_tvalid, p.m_axis_sum_tready, sum) && kept;
    kept = state_offer.kept(p.m_axis_state_tvalid, p.m_axis_state_tready, row) && kept;
    kept = read_offer.kept(p.rd_valid, p.rd_ready, p.rd_addr) && kept;
    kept = redo_offer.kept(p.redo_valid, p.redo_ready, p.redo_first) && kept;
    int fault = kept || reset ? DONE : UNSTABLE;
    // what this edge transfers
    if (p.start) started = true;
    if (p.rd_data_valid) fetches.pop_front();
    if (p.rd_valid && p.rd_ready) {
      if (p.rd_addr >= job->dec_words || fetches.size() == OUTSTANDING) {
        fault = OVERRUN;
      } else {
        const uint64_t due = clock + 3 + (chance(*lane, job->idle / 4) ? 20u : 0u);
        fetches.push_back({std::max(due, fetches.empty() ? due : fetches.back().due), job->payload[p.rd_addr]});
      }
    }
    if (p.s_axis_class_tvalid && p.s_axis_class_tready) cls.taken(), ++cls_at;
    if (p.s_axis_local_tvalid && p.s_axis_local_tready) {
      if (loc_at < 2) job->first_clock = clock;  // the first waits in a register while tables are loaded
      job->last_clock = clock;
      loc.taken(), ++loc_at;
    }
    if (p.s_axis_redo_tvalid && p.s_axis_redo_tready) redo.taken(), ++redo_at;
    if (p.redo_valid && p.redo_ready) redo_at = p.redo_first, redo_end = redo_at + p.redo_count, ++job->redos;
    if (p.s_axis_state_tvalid && p.s_axis_state_tready) tables.taken(), ++in_at[client];
    if (p.m_axis_state_tvalid && p.m_axis_state_tready) {
      if (out_at[client] == 256)
        fault = OVERRUN;
      else
        (client ? job->enc_hist_out : job->dec_hist_out)[out_at[client]++] = p.m_axis_state_tdata;
      if (p.m_axis_state_tlast != (out_at[client] == 256)) fault = MISFRAMED;
    }
    if (p.m_axis_sum_tvalid && p.m_axis_sum_tready) {
      if (job->sums_taken == job->count)
        fault = OVERRUN;
      else
        job->sums[job->sums_taken++] = p.m_axis_sum_tdata;
      if (p.m_axis_sum_tlast != (job->sums_taken == job->count)) fault = MISFRAMED;
    }
    if (p.m_axis_payload_tvalid && p.m_axis_payload_tready) {
      if (job->out_words == job->out_cap)
        fault = OVERRUN;
      else
        job->out[job->out_words++] = p.m_axis_payload_tdata;
      if (ended) fault = MISFRAMED;
      ended = p.m_axis_payload_tlast;
    }
    if (p.dec_done) dec_done = true, job->dec_error = p.dec_error, job->dec_new_shift = p.dec_new_shift;
    if (p.enc_done) enc_done = true, job->enc_new_shift = p.enc_new_shift;
    p.clk = 1;
    p.eval();
    if (reset) {
      status = RESET;
      break;
    }
    if (fault) {
      status = fault;
      break;
    }
    if (dec_done && enc_done && started && (!keep || job->sums_taken == job->count)) {
      const bool saved = out_at[0] == (job->decode && !job->dec_error ? 256u : 0u);
      status = saved && out_at[1] == (job->encode ? 256u : 0u) ? DONE : UNSAVED;
      if (job->encode && !ended) status = MISFRAMED;
      ++clock;
      break;
    }
  }
  job->clocks = clock;
  // Up to three idle clocks lie between two commands. After a fault a reset: it must not show in the next one.
  const bool fault = status != DONE && status != RESET;
  for (int i = fault ? 2 : lane->rng >> 40 & 3; i > 0; --i) {
    p.rst = fault, p.start = 0;
    p.s_axis_class_tvalid = p.s_axis_local_tvalid = p.s_axis_redo_tvalid = p.s_axis_state_tvalid = 0;
    p.rd_data_valid = 0;
    p.clk = 0, p.eval();
    p.clk = 1, p.eval();
  }
  return status;
}

}  // extern "C"
