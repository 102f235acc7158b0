// Streams heads through an attention unit: queries and rows with gaps, results that are not always taken, a reset.
#include "faults.h"

// Words of a stream with their tlast; called through ctypes: attention_stress.py mirrors the structs.
struct Words {
  uint64_t* data;
  uint8_t* last;
  uint64_t count;
};

struct Heads {
  Words queries, rows, results;  // results: room for them
  Stress stress;                 // idle: queries; refuse: rows idle; busy: results are not taken
  int64_t reset_at;              // a clock, behind which all begins again; -1: none
};

namespace {

constexpr uint64_t PATIENCE = 20000;  // clocks in which nothing happens: longer than a result takes
constexpr int RESET = 70;             // clocks until streams are ready

// A stream into the unit: valid words stay until they are taken.
struct Source {
  const Words* words;
  uint64_t next = 0;
  bool offered = false;
  void give(Random& rng, uint32_t idle, CData& valid, QData& data, CData& last) {
    offered = offered || (next < words->count && !rng.chance(idle));
    valid = offered, data = offered ? words->data[next] : rng.next(), last = offered ? words->last[next] : rng.next() & 1;
  }
  bool taken(bool ready) {
    if (!offered || !ready) return false;
    return ++next, offered = false, true;
  }
};

void reset(Model& m, Random& rng) {
  Vtop& p = *m.top;
  p.rst = 1;
  for (uint32_t n = rng.below(3) + 1; n; --n) settle(m), edge(m);
  p.rst = p.s_axis_query_tvalid = p.s_axis_rows_tvalid = 0;
  for (int n = 0; n < RESET; ++n) settle(m), edge(m);
}

}  // namespace

// Returns the clocks; faults: what was wrong besides results, which are noted.
extern "C" uint64_t attention_unit_run(Model* model, Heads* heads, uint64_t seed, uint64_t expected,
                                       uint32_t* faults, uint32_t* refused) {
  Model& m = *model;
  Vtop& p = *m.top;
  Random rng(seed);
  uint64_t t = 0, moved = 0;
  bool struck = heads->reset_at < 0;
  reset(m, rng);
  Source queries{&heads->queries}, rows{&heads->rows};
  Words& results = heads->results;
  const uint64_t room = results.count;
  results.count = 0;
  bool held = false;
  uint64_t held_data = 0;
  uint8_t held_last = 0;
  // Some clocks behind the last word, in which nothing more may come.
  for (uint64_t over = 0; over < 40 && !*faults; ++t) {
    if (!struck && t == uint64_t(heads->reset_at)) {
      struck = true, held = false, moved = t, results.count = 0;
      reset(m, rng);
      queries = Source{&heads->queries}, rows = Source{&heads->rows};
    }
    queries.give(rng, heads->stress.idle, p.s_axis_query_tvalid, p.s_axis_query_tdata, p.s_axis_query_tlast);
    rows.give(rng, heads->stress.refuse, p.s_axis_rows_tvalid, p.s_axis_rows_tdata, p.s_axis_rows_tlast);
    p.m_axis_result_tready = !rng.chance(heads->stress.busy);
    settle(m);
    const bool valid = p.m_axis_result_tvalid;
    if (held && (!valid || p.m_axis_result_tdata != held_data || p.m_axis_result_tlast != held_last))
      *faults |= UNSTABLE;
    held = valid && !p.m_axis_result_tready;
    held_data = p.m_axis_result_tdata, held_last = p.m_axis_result_tlast;
    if (valid && !held) {
      if (results.count == room) *faults |= BYTES_BEYOND;
      else results.data[results.count] = held_data, results.last[results.count++] = held_last;
      moved = t;
    }
    if (queries.taken(p.s_axis_query_tready)) moved = t;
    if (rows.taken(p.s_axis_rows_tready)) moved = t;
    const bool all = queries.next == heads->queries.count && rows.next == heads->rows.count;
    over = all && results.count >= expected ? over + 1 : 0;
    if (t - moved > PATIENCE) *faults |= HANG;
    edge(m);
  }
  *refused = p.refused;
  return t;
}
