"""A whole AllReduce by simulated NICs, checked against the host's frame by frame (make sim).

python -m oscar_sim.ring --schedule boomerang --values 1200
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from myhdl import StopSimulation, always, block

from oscar.collective.schedules import make_schedule
from oscar.numerics.plans import ChunkPlan, make_plan
from oscar_hdl.oscar_nic import LanePorts, oscar_nic
from oscar_hdl.params import LaneParams
from oscar_hdl.splitter import splitter
from oscar_hdl.streams.bundles import AxiLite, Stream, bit, word
from oscar_sim.bench import clock
from oscar_sim.cycles import CycleSimulator
from oscar_sim.ends import Collector, Feeder
from oscar_sim.ring.expected import Iteration, host_run
from oscar_sim.ring.node import NicPorts, RingNode
from oscar_sim.ring.shell import Script, Wire

DEPTH_LOG2 = 11
Progress = Callable[[int, int], None]


def table_sets(nodes: int) -> int:
    """Return the table sets of a NIC: one for each frame a node codes in an iteration, two to save into."""
    return max(16, 1 << (4 * (nodes - 1) + 1).bit_length())


@dataclass(frozen=True)
class RingOptions:
    """What is run. values: of the bucket; rate: 16-bit words per clock of a link; latency: clocks."""

    schedule: str = "boomerang"
    nodes: int = 3
    values: int = 1200
    iterations: int = 2
    workload: str = "numpy-digits"
    granule: int = 64
    block_log2: int = 10
    rate: float = 1.0
    latency: int = 20
    vcd: Path | None = None


def nic_signals() -> dict[str, Any]:
    """Return fresh signals for all ports of an oscar_nic with one lane, by name, but clk and rst."""
    lane = LanePorts()
    return {
        "s_axil": AxiLite(8),
        "irq": bit(),
        "s_axis_rx": Stream(16, keep=2),
        "m_axis_tx": Stream(16, keep=2),
        **vars(lane),
    }


class Splitter:
    """The hardware splitter beside a NIC: final sums in, the next plan out."""

    def __init__(self, values: int, nodes: int, granule: int) -> None:
        self.values, self.nodes, self.granule = values, nodes, granule
        self.blocks = -(-values // granule)
        block_bits = max(6, self.blocks.bit_length())
        place_bits = block_bits + granule.bit_length() - 1
        self.signals: dict[str, Any] = {
            "clear_smoothing": bit(), "nodes": word(5, nodes), "blocks": word(block_bits + 1, self.blocks),
            "seg_start": word(place_bits), "s_axis": Stream(16), "finish": bit(), "m_axis": Stream(16),
            "equal": bit(), "done": bit(),
        }  # fmt: skip
        self.sums, self.edges = Feeder(self.signals["s_axis"]), Collector(self.signals["m_axis"])
        self.plan: ChunkPlan | None = None

    def tick(self) -> None:
        """One rising edge."""
        self.sums.tick()
        self.edges.tick()

    def clear(self) -> Script:
        """Forget all costs."""
        self.signals["clear_smoothing"].next = True
        yield
        self.signals["clear_smoothing"].next = False
        for _ in range(2 << len(self.signals["blocks"])):
            yield

    def split(self, plan: ChunkPlan, sums: np.ndarray) -> Script:
        """Stream the sums of one AllReduce, chunk by chunk; `plan` is the next one afterwards."""
        self.edges.words.clear()
        for low, high in zip(plan.bounds, plan.bounds[1:], strict=False):
            if high > low:
                self.signals["seg_start"].next = low
                self.sums.put((sums[low:high] & 0xFFFF).tolist())
                while self.sums.queue or self.sums.offered:
                    yield
        self.signals["finish"].next = True
        yield
        self.signals["finish"].next = False
        while not self.signals["done"]:
            yield
        bounds = (0, *(min(self.values, edge * self.granule) for edge in self.edges.words), self.values)
        equal = make_plan("splitter", self.values, self.nodes, granule=self.granule)
        self.plan = equal if self.signals["equal"] else ChunkPlan("splitter", None, bounds)


class RingRun:
    """The NICs, their nodes and the wires between them."""

    def __init__(self, options: RingOptions, progress: Progress = lambda done, total: None) -> None:
        self.options, self.progress = options, progress
        self.params = LaneParams(block_log2=options.block_log2)
        self.config, self.expected = host_run(
            self.params, nodes=options.nodes, values=options.values, iterations=options.iterations,
            schedule=options.schedule, workload=options.workload, granule=options.granule,
        )  # fmt: skip
        self.clk, self.rst = bit(), bit(1)
        width = self.config.quantiser_params(options.nodes).sum_width
        pairs = [(a, (a + d) % options.nodes) for a in range(options.nodes) for d in (1, options.nodes - 1)]
        wires = {pair: Wire(options.latency) for pair in pairs}
        self.signals = [nic_signals() for _ in range(options.nodes)]
        self.nodes = [
            RingNode(
                rank, make_schedule(options.schedule, options.nodes), NicPorts(signals), width=width,
                asc=self.params.asc, sets=table_sets(options.nodes), wires=wires, rate=options.rate,
            )
            for rank, signals in enumerate(self.signals)
        ]  # fmt: skip
        self.splitters = [
            Splitter(options.values, options.nodes, options.granule) for _ in range(options.nodes)
        ]
        self.clocks = 0
        self.rows: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.counters: list[dict[str, int]] = [{} for _ in self.nodes]

    @block
    def hardware(self) -> Any:
        """Build all that is hardware."""
        clk, rst, granule = self.clk, self.rst, self.options.granule.bit_length() - 1
        sets = table_sets(self.options.nodes)
        nics = [
            oscar_nic(clk, rst, **signals, params=self.params, sets=sets, depth_log2=DEPTH_LOG2)
            for signals in self.signals
        ]
        splitters = [splitter(clk, rst, **plan.signals, granule_log2=granule) for plan in self.splitters]
        return nics, splitters

    @block
    def traced(self) -> Any:
        """Build everything for MyHDL's own simulator, which writes waveforms."""
        clk = self.clk
        parts, script = (clock(clk), self.hardware()), self.script()

        @always(clk.posedge)
        def move():
            self.step(script)

        return parts, move

    def step(self, script: Script) -> None:
        """One rising edge of everything that is not hardware."""
        self.clocks += 1
        if not self.rst:
            for node in self.nodes:
                node.tick()
            for plan in self.splitters:
                plan.tick()
        if next(script, "end") == "end":
            raise StopSimulation

    def script(self) -> Script:
        """Reset, then one AllReduce after the other, with the plan that the hardware made of the last."""
        for _ in range(8):
            yield
        self.rst.next = False
        yield
        yield from together(plan.clear() for plan in self.splitters)
        plans = [self.expected[0].plan] * self.options.nodes
        for index, expected in enumerate(self.expected):
            start = self.clocks
            for node, plan in zip(self.nodes, plans, strict=True):
                node.start(plan, expected.local[node.rank], expected.classes)
            while not all(node.done for node in self.nodes):
                if self.clocks - start > 100 * self.options.values + 200_000:
                    self.faults.append(f"iteration {index} did not end")
                    return
                if self.clocks % 1000 == 0:
                    self._tell(index)
                yield
            self._tell(index)
            self._check(index, expected, self.clocks - start)
            yield from together(
                plan.split(used, node.result())
                for plan, used, node in zip(self.splitters, plans, self.nodes, strict=True)
            )
            plans = [plan.plan for plan in self.splitters if plan.plan is not None]
            self._check_plans(index, plans)
        for node in self.nodes:
            self.counters[node.rank] = yield from node.counters()

    def _tell(self, index: int) -> None:
        """Report how many frames were sent so far, of all iterations."""
        counts = [len(expected.frames) for expected in self.expected]
        sent = sum(len(node.port.frames) for node in self.nodes)
        self.progress(sum(counts[:index]) + sent, sum(counts))

    def _check_plans(self, index: int, plans: list[ChunkPlan]) -> None:
        """Compare the plans that the hardware made with the host's next one."""
        if index + 1 == len(self.expected):
            return
        wanted = self.expected[index + 1].plan.bounds
        for rank, plan in enumerate(plans):
            if plan.bounds != wanted:
                self.faults.append(f"node {rank} cuts at {plan.bounds} after iteration {index}, not {wanted}")
        if all(plan.bounds == wanted for plan in plans):
            self.rows[-1]["plan"] = wanted

    def _check(self, index: int, expected: Iteration, clocks: int) -> None:
        """Compare every frame and every sum with the host's."""
        sent = [frame for node in self.nodes for frame in node.port.frames]
        wanted = sorted(expected.frames.values())
        frames_equal = sorted(sent) == wanted
        sums = expected.plan.gather(expected.sums)
        right = [bool(np.array_equal(node.result(), sums)) for node in self.nodes]
        if not frames_equal:
            same = sum(frame in wanted for frame in sent)
            self.faults.append(f"iteration {index}: {same} of {len(wanted)} frames equal, {len(sent)} sent")
        if not all(right):
            self.faults.append(
                f"iteration {index}: sums right on nodes {np.flatnonzero(right).tolist()} only"
            )
        hops = 2 * (self.options.nodes - 1)
        self.rows.append(
            {
                "schedule": self.options.schedule,
                "iteration": index,
                "clocks": clocks,
                "frames": len(sent),
                "bytes": sum(map(len, sent)),
                "values_per_clock": hops * self.options.values / self.options.nodes / clocks,
                "equal": frames_equal and all(right),
            }
        )

    def run(self) -> None:
        """Simulate; results are in rows, counters and faults."""
        if self.options.vcd is not None:
            self._run_traced(self.options.vcd)
            return
        script = self.script()
        simulator = CycleSimulator(self.hardware(), self.clk, lambda: self.step(script))
        with contextlib.suppress(StopSimulation):
            while True:
                simulator.run(1000)

    def _run_traced(self, path: Path) -> None:
        inst = self.traced()
        path.parent.mkdir(parents=True, exist_ok=True)
        inst.config_sim(trace=True, directory=str(path.parent), filename=path.stem, tracebackup=False)
        try:
            inst.run_sim(quiet=1)
        finally:
            inst.quit_sim()


def together(scripts: Iterable[Script]) -> Script:
    """Run scripts side by side until all are done."""
    running = list(scripts)
    while running:
        running = [script for script in running if next(script, "end") != "end"]
        yield


def report(run: RingRun, seconds: float) -> list[str]:
    """Return the table of a run."""
    options = run.options
    lines = [
        f"# {options.nodes} oscar_nic in MyHDL, {options.schedule}, {options.values} values of "
        f"{options.workload}, blocks of {run.params.block}, links {options.rate:g} words/clock, "
        f"{options.latency} clocks",
        f"{'iteration':>9} {'clocks':>8} {'frames':>6} {'bytes':>7} {'val/clock':>9} equal to the host",
    ]
    for row in run.rows:
        lines.append(
            f"{row['iteration']:>9} {row['clocks']:>8} {row['frames']:>6} {row['bytes']:>7} "
            f"{row['values_per_clock']:>9.3f} {'yes' if row['equal'] else 'NO'}"
        )
        if "plan" in row:
            lines.append(f"# the splitters cut the next iteration at {row['plan']}, as the host does")
    total = {name: sum(c.get(name, 0) for c in run.counters) for name in run.counters[0]}
    lines.append("# all nodes: " + ", ".join(f"{name} {value}" for name, value in total.items()))
    lines.append(f"# redos {sum(node.redos for node in run.nodes)}; {seconds:.0f} s, {run.clocks} clocks")
    return lines + [f"# FAULT: {fault}" for fault in run.faults]


def simulate(
    options: RingOptions, progress: Progress = lambda done, total: None
) -> tuple[RingRun, list[str]]:
    """Run one ring and return it with its table; progress(frames sent, of how many) is called often."""
    run = RingRun(options, progress)
    start = time.perf_counter()
    run.run()
    return run, report(run, time.perf_counter() - start)


def tables(options: RingOptions, told: Any) -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """Run one ring, its progress put into `told`; return lines to print, rows and faults."""
    run, lines = simulate(options, lambda done, total: told.put((options.schedule, done, total)))
    return lines, run.rows, run.faults
