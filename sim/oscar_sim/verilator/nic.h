// A driver and a network around a whole NIC with its memory, or around a slice of a switch. Called through ctypes:
// whole.py mirrors the structs. Who includes this says which ports of frames there are: nic.cpp, switch.cpp.
#pragma once
#include <algorithm>
#include <iterator>
#include <vector>
#include "faults.h"

// A stream of frames; peer: who made a frame, or whom it is for, where the stream says so.
struct FramePort {
  uint8_t *valid, *ready, *last;
  void *data, *keep;
  uint32_t bytes, keep_bytes;
  uint8_t* peer;
};
#define FRAME_PORT(name, peer)                                                                                      \
  FramePort{&p.name##_tvalid, &p.name##_tready, &p.name##_tlast, &p.name##_tdata, &p.name##_tkeep,                 \
            sizeof(p.name##_tdata), sizeof(p.name##_tkeep), peer}

std::vector<FramePort> frames_in(Vtop& p);
std::vector<FramePort> frames_out(Vtop& p);

extern "C" {

// The registers that make a command; it is given when so many of either direction have ended.
struct Command {
  uint32_t frame, shape, tables, order;
  uint32_t after_receives, after_sends;
  uint32_t abort;  // its frame never comes
  uint32_t error;
  uint32_t clocks;  // from its last write to the moment in which the driver has read its end
};

struct Arrival {
  const uint8_t* bytes;
  uint32_t size, after;  // comes when so many RECEIVE commands have ended
  uint32_t peer, port;  // who made it, where it comes
};

// A stream's words, and a byte for each that says whether it is a packet's last. Those up to `before` come before
// commands, then up to `during` while they run, the others when all commands have ended. Up to `pause` clocks lie
// before a packet of the second kind.
struct Words {
  const uint8_t *data, *last;
  uint32_t count, before, during, pause;
};

// What a stream gave.
struct Taken {
  uint8_t *data, *last;
  uint32_t room, count;
};

struct NicRun {
  Words values, side, read, list;
  Taken values_read, descriptors_read;
  Command *receives, *sends;
  Arrival* arrivals;
  uint8_t* out;        // frames that left, one after the other
  uint32_t* out_ends;  // where each ends
  uint32_t* out_peers;  // to whom each goes, or where it left
  uint64_t out_room;
  uint32_t receive_count, send_count, arrival_count, out_frames;
  uint32_t list_entries, list_result;  // 0: commands are given by registers
  Stress stress;
  uint32_t pry;  // moments of the driver in which it writes what it should not
  uint64_t seed, limit;
  int64_t reset_at;
  // results
  uint64_t clocks, bad_frames;
  uint32_t faults, receives_ended, sends_ended, was_reset, reasons, refused;
  uint32_t counters[16], drops[16];  // drops: of peers
};

}  // extern "C"

namespace {

// Registers (docs/reference/registers.md).
constexpr uint32_t STATUS = 0x08, IRQ_STATUS = 0x0C, IRQ_ENABLE = 0x10, COUNTERS = 0x80;
constexpr uint32_t ABORT = 0x14, FIELDS = 0x20, RECEIVE = 0x2C, SEND = 0x4C, RESULT = 4;  // fields: three registers
constexpr uint32_t PEER_SHOW = 0x60, PEER_DROPS = 0x64, SHOWS = 20;  // clocks
constexpr uint32_t LIST_COMMAND = 0x18, LIST_RESULT = 0x1C, LIST_RUN = 1u << 31, IRQ_LIST = 1 << 9;
constexpr uint32_t IRQ_BAD = 1 << 2, IRQ_COMMANDS = 0x7F;
constexpr uint32_t ABORT_AFTER = 3000;  // clocks: the command waits for its frame
constexpr uint32_t NEVER_WRITTEN[] = {0x00, 0x04, 0x08, 0x1C, 0x38, 0x30, 0x34, 0x40, 0x48, 0x50, 0x5C, 0x80, 0xB8, 0xBC, 0xC4, 0xFC};
constexpr int COUNTERS_NUMBER = 16, MOST_GIVEN = 5, ERRORS_KEPT = 5;
constexpr uint32_t QUIET = 200000;       // clocks without anything that happens,
constexpr uint32_t QUIET_LIST = 2000000;  // or with a list, of whose commands only the last one tells

// One access at a time of an AXI4-Lite manager, whose channels have delays of their own.
struct Manager {
  enum { NOTHING, WRITE, READ } doing = NOTHING;
  uint32_t address = 0, data = 0, strobes = 15;
  bool address_open = false, data_open = false;
  uint32_t wait_address = 0, wait_data = 0;
  void write(uint32_t a, uint32_t d, uint32_t busy, Random& rng) {
    doing = WRITE, address = a, data = d, strobes = 15, address_open = data_open = true;
    wait_address = rng.chance(busy) ? rng.below(5) : 0, wait_data = rng.chance(busy) ? rng.below(5) : 0;
  }
  void read(uint32_t a, uint32_t busy, Random& rng) {
    doing = READ, address = a, address_open = true, data_open = false;
    wait_address = rng.chance(busy) ? rng.below(5) : 0;
  }
  void inputs(Vtop& p, uint32_t busy, Random& rng) {
    if (wait_address) --wait_address;
    if (wait_data) --wait_data;
    p.s_axil_awvalid = doing == WRITE && address_open && !wait_address;
    p.s_axil_wvalid = doing == WRITE && data_open && !wait_data;
    p.s_axil_arvalid = doing == READ && address_open && !wait_address;
    p.s_axil_awaddr = p.s_axil_araddr = address & 0xFF;
    p.s_axil_wdata = data, p.s_axil_wstrb = strobes;
    p.s_axil_bready = doing == WRITE && !rng.chance(busy);
    p.s_axil_rready = doing == READ && !rng.chance(busy);
  }
  // Returns whether the access ended; `data` is what was read. error: the NIC refused it.
  bool look(Vtop& p, bool& error) {
    if (p.s_axil_awvalid && p.s_axil_awready) address_open = false;
    if (p.s_axil_wvalid && p.s_axil_wready) data_open = false;
    if (p.s_axil_arvalid && p.s_axil_arready) address_open = false;
    if (doing == WRITE && p.s_axil_bvalid && p.s_axil_bready) return error = p.s_axil_bresp, doing = NOTHING, true;
    if (doing == READ && p.s_axil_rvalid && p.s_axil_rready)
      return error = p.s_axil_rresp, data = p.s_axil_rdata, doing = NOTHING, true;
    return false;
  }
};

struct Direction {
  uint32_t order;  // its COMMAND register
  Command* commands;
  uint32_t count;
  uint32_t given = 0, ended = 0;
  uint64_t at[256] = {};  // when each was given
};

// A stream of rows into the NIC.
struct Feed {
  const Words& words;
  uint32_t size, at = 0, wait = 0;
  bool valid = false;
  template <typename Data>
  void offer(uint32_t limit, uint32_t idle, Random& rng, uint8_t& tvalid, Data& tdata, uint8_t& tlast) {
    if (wait) --wait;
    else if (!valid && at < limit) valid = !rng.chance(idle);
    tvalid = valid;
    if (!valid) return;
    memcpy(&tdata, words.data + uint64_t(size) * at, size);
    tlast = words.last[at];
  }
  bool look(bool ready, Random& rng) {
    if (!valid || !ready) return false;
    if (words.last[at] && words.pause && at + 1 >= words.before && at + 1 < words.during) wait = rng.below(words.pause);
    valid = false, ++at;
    return true;
  }
};

// A stream of rows out of the NIC.
struct Sink {
  Taken& taken;
  uint32_t size;
  bool held = false, held_last = false;
  uint8_t held_data[sizeof(Vtop::m_axis_values_tdata)] = {};
  uint32_t look(bool valid, bool ready, const void* data, bool last) {
    if (held && (!valid || memcmp(held_data, data, size) || held_last != last)) return UNSTABLE;
    held = valid && !ready, held_last = last;
    if (valid) memcpy(held_data, data, size);
    if (!valid || !ready) return 0;
    if (taken.count == taken.room) return BYTES_BEYOND;
    memcpy(taken.data + uint64_t(size) * taken.count, data, size), taken.last[taken.count++] = last;
    return 0;
  }
};

// Frames that come at a port: which of all, how much of the first one has come.
struct Coming {
  FramePort port;
  std::vector<uint32_t> frames = {};
  uint32_t next = 0, came = 0;
  bool valid = false;
};

// A frame that leaves at a port.
struct Leaving {
  FramePort port;
  std::vector<uint8_t> bytes = {};
  uint32_t peer = 0;
  bool held = false, held_last = false;
  uint8_t held_data[64] = {};
};

enum class Step { LOADING, ENABLE, LISTING, IDLE, IRQ, CLEAR, RESULTS_IN, RESULTS_OUT, LIST_ENDS, PENDING, WRITING, ABORTING, PRYING, COUNTING, SHOWING, SHOWN, DROPS, READING, OVER };

struct Driver {
  Vtop& p;
  NicRun& run;
  Random rng;
  Manager bus;
  Direction ways[2];
  Feed values, side, read, list;
  Sink values_read, descriptors_read;
  Step step = Step::LOADING;
  int way = 0, part = 0, counter = 0;
  std::vector<Coming> coming;
  std::vector<Leaving> leaving;
  uint64_t t = 0, moved = 0, out_at = 0;
  uint32_t arrived = 0, out_frames = 0, faults = 0, aborted = 0;
  bool pried = false, listed = false;

  explicit Driver(Model& m, NicRun& r)
      : p(*m.top), run(r), rng(r.seed),
        ways{{RECEIVE, r.receives, r.receive_count}, {SEND, r.sends, r.send_count}},
        values{r.values, sizeof(p.s_axis_values_tdata)}, side{r.side, sizeof(p.s_axis_side_tdata)},
        read{r.read, 8}, list{r.list, 8},
        values_read{r.values_read, sizeof(p.m_axis_values_tdata)},
        descriptors_read{r.descriptors_read, sizeof(p.m_axis_descriptors_tdata)} {
    for (const FramePort& port : frames_in(p)) coming.push_back({port});
    for (const FramePort& port : frames_out(p)) leaving.push_back({port});
    for (uint32_t n = 0; n < r.arrival_count; ++n) coming[r.arrivals[n].port].frames.push_back(n);
  }

  // --- registers

  void begin() {
    const uint32_t busy = run.stress.busy;
    switch (step) {
      case Step::ENABLE: return bus.write(IRQ_ENABLE, run.list_entries ? IRQ_LIST : IRQ_COMMANDS, busy, rng);
      case Step::LISTING: return bus.write(LIST_COMMAND, LIST_RUN | run.list_entries, busy, rng);
      case Step::LIST_ENDS: return bus.read(LIST_RESULT, busy, rng);
      case Step::IRQ: return bus.read(IRQ_STATUS, busy, rng);
      case Step::CLEAR: return bus.write(IRQ_STATUS, bus.data, busy, rng);
      case Step::RESULTS_IN: return bus.read(RECEIVE + RESULT, busy, rng);
      case Step::RESULTS_OUT: return bus.read(SEND + RESULT, busy, rng);
      case Step::PENDING: return bus.read(STATUS, busy, rng);
      case Step::ABORTING: return bus.write(ABORT, 1, busy, rng);
      case Step::PRYING: return pry();
      case Step::COUNTING: return bus.read(COUNTERS + 4 * counter, busy, rng);
      case Step::SHOWING: return bus.write(PEER_SHOW, counter, busy, rng);
      case Step::DROPS: return bus.read(PEER_DROPS, busy, rng);
      case Step::WRITING: {
        const Command& c = ways[way].commands[ways[way].given];
        const uint32_t words[4] = {c.frame, c.shape, c.tables, c.order};
        return bus.write(part < 3 ? FIELDS + 4 * part : ways[way].order, words[part], busy, rng);
      }
      default: return;
    }
  }

  // A write that changes nothing of commands that were given: it is refused, or to registers of the next one.
  void pry() {
    const uint32_t order = rng.chance(32768) ? RECEIVE : SEND, noise = rng.next(), busy = run.stress.busy;
    const uint32_t field = FIELDS + 4 * rng.below(3);
    switch (rng.below(4)) {
      case 0: return bus.write(field, noise, busy, rng);
      case 1:  // neither add nor adopt; a row behind all
        return bus.write(order, order == SEND ? noise | 0xFFFFF : noise & 0x3FFFFFFF, busy, rng);
      case 2: return bus.write(NEVER_WRITTEN[rng.below(std::size(NEVER_WRITTEN))], noise, busy, rng);
      default: bus.write(rng.below(4) ? field : order, noise, busy, rng), bus.strobes = rng.below(15);
    }
  }

  void pried_open(bool error) {
    const bool command = bus.address == RECEIVE || bus.address == SEND;
    const bool taken = bus.strobes == 15 && (command || (bus.address >= FIELDS && bus.address < RECEIVE));
    if (taken && command) ++run.refused;
    if (taken == error) faults |= SPURIOUS;
  }

  bool may_abort() const {
    const Direction& d = ways[0];
    return d.ended < d.given && d.commands[d.ended].abort && aborted <= d.ended && t - d.at[d.ended & 255] > ABORT_AFTER;
  }

  bool may_give(const Direction& d) const {
    if (d.given == d.count || d.given - d.ended >= MOST_GIVEN) return false;
    const Command& c = d.commands[d.given];
    return c.after_receives <= ways[0].ended && c.after_sends <= ways[1].ended;
  }

  void idle() {
    if (p.irq) {
      step = Step::IRQ;
    } else if (ways[0].ended == ways[0].count && ways[1].ended == ways[1].count && out_frames >= run.out_frames &&
               arrived == run.arrival_count && (listed || !run.list_entries) && came(&Words::during)) {
      if (t - moved > 300) step = Step::COUNTING, counter = 0;  // what is left over has time to show
    } else if (may_abort()) {
      step = Step::ABORTING, aborted = ways[0].ended + 1;
    } else if (rng.chance(run.pry)) {
      step = Step::PRYING, pried = true;
    } else {
      way = rng.next() & 1;
      if (!may_give(ways[way])) way ^= 1;
      if (!may_give(ways[way])) return;
      part = 0, step = ways[way].given == ways[way].ended && !pried ? Step::WRITING : Step::PENDING;
    }
    if (step != Step::IDLE) begin();
  }

  void ends(Direction& d, uint32_t result) {
    const uint32_t ended = (result - d.ended) & 0xFF;
    if (ended > d.given - d.ended || ended > ERRORS_KEPT) {
      faults |= SPURIOUS;
      return;
    }
    for (uint32_t i = 0; i < ended; ++i) {
      Command& c = d.commands[d.ended + i];
      c.error = result >> (8 + 3 * (ended - 1 - i)) & 7;
      c.clocks = uint32_t(t - d.at[(d.ended + i) & 255]);
    }
    d.ended += ended;
    if (ended) moved = t;
  }

  void done(bool error) {
    if (error && step != Step::PRYING) faults |= SPURIOUS;
    switch (step) {
      case Step::ENABLE: step = run.list_entries ? Step::LISTING : Step::IDLE; break;
      case Step::LISTING: moved = t, step = Step::IDLE; break;
      case Step::IRQ:
        if (bus.data & IRQ_BAD) moved = t;
        step = Step::CLEAR;
        break;
      case Step::CLEAR: step = run.list_entries ? Step::LIST_ENDS : Step::RESULTS_IN; break;
      case Step::LIST_ENDS: run.list_result = bus.data, listed = true, moved = t, step = Step::IDLE; break;
      case Step::RESULTS_IN:
        ends(ways[0], bus.data);
        run.reasons |= 1u << (bus.data >> 23 & 15);
        step = Step::RESULTS_OUT;
        break;
      case Step::RESULTS_OUT: ends(ways[1], bus.data), step = Step::IDLE; break;
      case Step::PENDING: step = bus.data & (way ? 16 : 1) ? Step::IDLE : Step::WRITING; break;
      case Step::WRITING:
        if (++part == 4) {
          ways[way].at[ways[way].given++ & 255] = t, moved = t;
          step = Step::IDLE, pried = false;
        }
        break;
      case Step::ABORTING: moved = t, step = Step::IDLE; break;
      case Step::PRYING: pried_open(error), step = Step::IDLE; break;
      case Step::COUNTING:
        run.counters[counter] = bus.data;
        if (++counter == COUNTERS_NUMBER) step = Step::SHOWING, counter = 0;
        break;
      case Step::SHOWING: step = Step::SHOWN, moved = t; break;
      case Step::DROPS:
        run.drops[counter] = bus.data;
        step = ++counter == std::size(run.drops) ? Step::READING : Step::SHOWING;
        break;
      default: break;
    }
    if (step != Step::IDLE && step != Step::SHOWN && step != Step::READING) begin();
  }

  // --- frames

  void offer(Coming& at) {
    const FramePort& port = at.port;
    if (!at.valid && at.next < at.frames.size() && run.arrivals[at.frames[at.next]].after <= ways[0].ended)
      at.valid = !rng.chance(run.stress.idle);
    *port.valid = at.valid;
    if (!at.valid) return;
    const Arrival& a = run.arrivals[at.frames[at.next]];
    const uint32_t n = std::min(port.bytes, a.size - at.came);
    memset(port.data, 0, port.bytes);
    memcpy(port.data, a.bytes + at.came, n);
    const uint64_t keep = n == 64 ? ~0ull : (1ull << n) - 1;
    memcpy(port.keep, &keep, port.keep_bytes);
    *port.last = at.came + n == a.size;
    if (port.peer) *port.peer = a.peer + at.came & 255;  // counts in the first word
  }

  void take(Coming& at) {
    if (!at.valid || !*at.port.ready) return;
    at.valid = false, at.came += at.port.bytes, moved = t;
    if (at.came >= run.arrivals[at.frames[at.next]].size) ++at.next, ++arrived, at.came = 0;
  }

  void leave(Leaving& at, uint32_t number) {
    const FramePort& port = at.port;
    const bool valid = *port.valid, last = *port.last;
    const uint32_t peer = port.peer ? *port.peer : number;
    if (at.held && (!valid || memcmp(at.held_data, port.data, port.bytes) || at.held_last != last)) faults |= UNSTABLE;
    at.held = valid && !*port.ready, at.held_last = last;
    if (valid) memcpy(at.held_data, port.data, port.bytes);
    if (valid && !at.bytes.empty() && peer != at.peer) faults |= MISFRAMED;
    if (!valid || !*port.ready) return;
    uint64_t keep = 0;
    memcpy(&keep, port.keep, port.keep_bytes);
    const uint32_t n = uint32_t(__builtin_popcountll(keep));
    if (!n || (keep & (keep + 1)) || (n < port.bytes && !last)) faults |= MISFRAMED;
    const uint8_t* data = static_cast<const uint8_t*>(port.data);
    at.bytes.insert(at.bytes.end(), data, data + n), at.peer = peer, moved = t;
    if (last) left(at);
  }

  void left(Leaving& at) {
    if (out_at + at.bytes.size() > run.out_room || out_frames == run.out_frames) {
      faults |= BYTES_BEYOND;
      return;
    }
    memcpy(run.out + out_at, at.bytes.data(), at.bytes.size());
    out_at += at.bytes.size();
    run.out_peers[out_frames] = at.peer, run.out_ends[out_frames++] = uint32_t(out_at);
    at.bytes.clear();
  }

  // --- rows

  // Whether all streams of rows have come to a bound, and what was asked for is read.
  bool came(uint32_t Words::*bound) const {
    const auto full = [bound](const Feed& feed) { return feed.at >= feed.words.*bound; };
    return full(values) && full(side) && full(read) && full(list);
  }

  void offer_rows() {
    const auto limit = [this](const Words& words) {
      return step == Step::READING ? words.count : step == Step::LOADING ? words.before : words.during;
    };
    const uint32_t idle = run.stress.idle;
    values.offer(limit(values.words), idle, rng, p.s_axis_values_tvalid, p.s_axis_values_tdata, p.s_axis_values_tlast);
    side.offer(limit(side.words), idle, rng, p.s_axis_side_tvalid, p.s_axis_side_tdata, p.s_axis_side_tlast);
    read.offer(limit(read.words), idle, rng, p.s_axis_read_tvalid, p.s_axis_read_tdata, p.s_axis_read_tlast);
    list.offer(limit(list.words), idle, rng, p.s_axis_list_tvalid, p.s_axis_list_tdata, p.s_axis_list_tlast);
    p.m_axis_values_tready = !rng.chance(run.stress.busy);
    p.m_axis_descriptors_tready = !rng.chance(run.stress.busy);
  }

  void look_rows() {
    if (values.look(p.s_axis_values_tready, rng) | side.look(p.s_axis_side_tready, rng) |
        read.look(p.s_axis_read_tready, rng) | list.look(p.s_axis_list_tready, rng))
      moved = t;
    const uint32_t before = run.values_read.count;
    faults |= values_read.look(p.m_axis_values_tvalid, p.m_axis_values_tready, &p.m_axis_values_tdata,
                               p.m_axis_values_tlast);
    faults |= descriptors_read.look(p.m_axis_descriptors_tvalid, p.m_axis_descriptors_tready, &p.m_axis_descriptors_tdata,
                                    p.m_axis_descriptors_tlast);
    if (run.values_read.count != before) moved = t;
  }

  // Loading and reading are over when all words were taken; what is written then is there before a command.
  void go_on() {
    if (step == Step::LOADING && came(&Words::before)) {
      step = Step::ENABLE, begin();
    } else if (step == Step::READING && came(&Words::count) && run.values_read.count == run.values_read.room &&
               run.descriptors_read.count == run.descriptors_read.room) {
      step = Step::OVER;
    }
  }

  // One clock.
  void clock(Model& m) {
    offer_rows();
    for (Coming& at : coming) offer(at);
    for (Leaving& at : leaving) *at.port.ready = !rng.chance(run.stress.busy);
    bus.inputs(p, run.stress.busy, rng);
    settle(m);
    bool error = false;
    const bool ended = bus.look(p, error);
    for (Coming& at : coming) take(at);
    for (uint32_t n = 0; n < leaving.size(); ++n) leave(leaving[n], n);
    look_rows();
    edge(m), ++t;
    if (step == Step::LOADING || step == Step::READING) go_on();
    else if (ended) done(error);
    else if (step == Step::SHOWN && t - moved > SHOWS) step = Step::DROPS, begin();
    else if (bus.doing == Manager::NOTHING && step == Step::IDLE) idle();
  }
};

void rest(Model& m, uint32_t clocks) {
  Vtop& p = *m.top;
  p.s_axil_awvalid = p.s_axil_wvalid = p.s_axil_arvalid = p.s_axil_bready = p.s_axil_rready = 0;
  for (const FramePort& port : frames_in(p)) *port.valid = 0;
  for (const FramePort& port : frames_out(p)) *port.ready = 0;
  p.s_axis_values_tvalid = p.s_axis_side_tvalid = p.s_axis_read_tvalid = 0;
  p.m_axis_values_tready = p.m_axis_descriptors_tready = p.s_axis_list_tvalid = 0;
  for (; clocks; --clocks) settle(m), edge(m);
}

}  // namespace

// Reset, and time to clear what takes some.
extern "C" void nic_reset(Model* m, uint32_t clocks) {
  m->top->rst = 1;
  rest(*m, 1);
  m->top->rst = 0;
  rest(*m, clocks);
}

extern "C" void nic_run(Model* m, NicRun* run) {
  Driver driver(*m, *run);
  while (driver.step != Step::OVER && !driver.faults) {
    if (run->reset_at >= 0 && driver.t == uint64_t(run->reset_at)) {
      run->was_reset = 1;
      break;
    }
    driver.clock(*m);
    if (driver.t - driver.moved > (run->list_entries ? QUIET_LIST : QUIET) || driver.t > run->limit) driver.faults |= HANG;
  }
  run->clocks = driver.t, run->faults = driver.faults;
  run->receives_ended = driver.ways[0].ended, run->sends_ended = driver.ways[1].ended;
  run->out_frames = driver.out_frames;
}
