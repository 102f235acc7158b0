// What Python calls (model.py): construction, and clocks over arrays of inputs and outputs.
#include "model.h"

double sc_time_stamp() { return 0; }

extern "C" void* port_address(Model* m, int port);
extern "C" uint64_t port_bytes(int port);

void record(Model& m) {
  --m.traced;
  for (int n = 0; const uint64_t size = port_bytes(n); ++n) {
    const uint8_t* at = static_cast<const uint8_t*>(port_address(&m, n));
    m.trace.insert(m.trace.end(), at, at + size);
  }
}

extern "C" {

struct Column {
  uint8_t* port;  // in the model
  uint8_t* data;  // a value a clock
  uint64_t size;  // bytes of either
};

Model* model_new() {
  Model* m = new Model;
  settle(*m);
  return m;
}

void model_delete(Model* m) { delete m; }

void model_settle(Model* m) { settle(*m); }

void model_clock(Model* m, uint64_t clocks) {
  for (; clocks; --clocks) settle(*m), edge(*m);
  settle(*m);
}

void model_trace(Model* m, uint64_t clocks) { m->trace.clear(), m->traced = clocks; }

const uint8_t* model_traced(Model* m, uint64_t* size) { return *size = m->trace.size(), m->trace.data(); }

// Begin a waveform; a clock takes so many ps.
void model_wave(Model* m, const char* file, uint64_t period) {
#ifdef OSCAR_WAVE
  m->wave = new VerilatedFstC, m->now = 0, m->period = period;
  m->top->trace(m->wave, 99);
  m->wave->open(file);
#endif
}

void model_wave_end(Model* m) {
#ifdef OSCAR_WAVE
  if (m->wave) m->wave->close(), delete m->wave;
  m->wave = nullptr;
#endif
}

void model_run(Model* m, uint64_t clocks, Column* in, uint64_t ins, Column* out, uint64_t outs) {
  for (uint64_t t = 0; t < clocks; ++t) {
    for (Column* c = in; c != in + ins; ++c) memcpy(c->port, c->data + t * c->size, c->size);
    settle(*m);
    for (Column* c = out; c != out + outs; ++c) memcpy(c->data + t * c->size, c->port, c->size);
    edge(*m);
  }
  settle(*m);
}

}  // extern "C"
