"""OSCAR in ten cells, from two arrays to a training curve: `python examples/tour.py` writes build/tour.png.

Editors and Jupyter (with jupytext) open this file as a notebook: a cell begins at `# %%`. It needs no extra
and takes less than a minute.
"""

# %% 1. Two workers, one gradient each: an array for each tensor of the model.
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import oscar
from oscar.asc import Decoder, Encoder
from oscar.collective.frames import AllReduceResult
from oscar.collective.schedules import make_schedule
from oscar.errors import FrameError
from oscar.planning.predict import predict
from oscar.timeline.link import LinkModel
from oscar_studies.workloads import make_workload

random = np.random.default_rng(0)


def gradients_of(nodes: int, scale: float = 1e-3) -> list[list[np.ndarray]]:
    """Return gradients[node][tensor], float32: a matrix and a bias."""
    shapes = ((256, 64), (64,))
    return [[random.laplace(scale=scale, size=s).astype(np.float32) for s in shapes] for _ in range(nodes)]


first, second = gradients_of(2)
print("two gradients of", [tensor.shape for tensor in first])

# %% 2. Their mean, as both workers compute it. Each value is rounded to a step; after that nothing is lost.
cluster = oscar.LocalCluster(oscar.Config())
result = cluster.allreduce([first, second])
error = np.abs(result.mean[0] - (first[0] + second[0]) / 2).max()
print(f"identical: {result.stats.identical}; sums exact: {result.stats.exact}; largest error {error:.1e}")

# %% 3. What crossed the links. Tables are learnt from what has passed; a row that pays is sent.
bits = [cluster.allreduce(gradients_of(2)).stats.bits_per_value for _ in range(8)]
print("bits/value, call by call:", " ".join(f"{b:.2f}" for b in bits), "(fp32: 32)")

# %% 4. One link alone: an encoder and a decoder whose tables move together.
encoder, decoder = Encoder(), Decoder()
sent = np.round(random.laplace(scale=8, size=10_000)).astype(np.int32)
for step in (0, 0, 1):  # each step of an AllReduce has tables of its own
    frame = encoder.encode(sent, step=step)
    assert np.array_equal(decoder.decode(frame, step=step), sent)
    print(f"step {step}: {len(frame):,} bytes for {sent.size:,} integers")

# %% 5. A damaged frame is refused, and the decoder is as it was: the undamaged one still decodes.
frame = encoder.encode(sent, step=0)
damaged = bytearray(frame)
damaged[len(frame) // 2] ^= 4
try:
    decoder.decode(bytes(damaged), step=0)
except FrameError as refused:
    print("refused:", refused)
assert np.array_equal(decoder.decode(frame, step=0), sent)

# %% 6. The sums depend neither on the method nor on the schedule; only the bytes do.
# Four calls leave ASC's tables nearly cold: what they learn over iterations shows in `oscar allreduce`.
workers, sums = gradients_of(4), []
for method, schedule in (("int16", "ring"), ("zstd", "ring"), ("asc", "ring"), ("asc", "direct")):
    several = oscar.LocalCluster(oscar.Config(method=method, schedule={"name": schedule}))
    for _ in range(4):  # tables settle
        result = several.allreduce(workers)
    sums.append(result.sums)
    print(f"{method:6} {schedule:9} {result.stats.wire_bytes:>8,} bytes")
assert all(np.array_equal(sums[0], other) for other in sums)

# %% 7. Real gradients: a language model in NumPy on the standard library's sources, four workers.
options = {"vocabulary": 800, "dimension": 16, "hidden": 48, "outputs": 300, "text_bytes": 300_000}
NODES, ITERATIONS = 4, 100


def train(config: oscar.Config) -> tuple[list[float], list[float]]:
    """Return the loss (nats) before each iteration, and the MB that all links carried until then."""
    model = make_workload("numpy-lm", nodes=NODES, seed=0, **options)
    reducer, losses, megabytes, total = oscar.LocalCluster(config), [], [], 0.0
    for _ in range(ITERATIONS):
        gradients = model.gradients()
        reduced: AllReduceResult = reducer.allreduce(gradients)
        model.apply(reduced.mean)
        losses.append(model.loss)
        megabytes.append(total := total + reduced.stats.wire_bytes / 1e6)
    return losses, megabytes


# %% 8. Three ways to train it. A coarse step wants error feedback: what rounding lost is added next time.
coarse = {"coarseness": 1.0, "error_feedback": True}
curves = {
    "fp32": train(oscar.Config(method="fp32", schedule={"name": "ring"})),
    "ASC, step sigma / 8": train(oscar.Config()),
    "ASC, step sigma": train(oscar.Config(quantiser=coarse)),
}
for name, (losses, megabytes) in curves.items():
    print(f"{name:20} loss {np.mean(losses[-10:]):.3f}, {megabytes[-1]:8.2f} MB")

# %% 9. Would it pay on your links? An ideal codec keeps up with the line; one on the host pays on slow ones.
for gbps, codec_gvalues in ((10.0, None), (10.0, 0.05), (0.1, 0.05)):
    link = LinkModel.of(gbps=gbps, codec_gvalues=codec_gvalues)
    found = predict(25_000_000, make_schedule("ring", 8), link, 4.0)
    rate = "at line rate" if codec_gvalues is None else f"at {codec_gvalues} G values/s"
    print(f"{gbps:4g} Gb/s, codec {rate}: {found.speedup:.2f}x fp32; {found.reason}")

# %% 10. The training curves: by iteration, and by bytes.
figure = Figure(figsize=(9, 3.5), layout="constrained")
left, right = figure.subplots(1, 2, sharey=True)
for name, (losses, megabytes) in curves.items():
    left.plot(losses, label=name)
    right.plot(megabytes, losses)
left.set(xlabel="iteration", ylabel="training loss, nats")
right.set(xlabel="MB on all links", xscale="log")
left.legend()
path = Path("build/tour.png")
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=120)
print("wrote", path)
figure  # noqa: B018 - a notebook shows it
