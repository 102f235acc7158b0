// What Python calls (model.py): construction, and clocks over arrays of inputs and outputs.
#include "model.h"

double sc_time_stamp() { return 0; }

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
