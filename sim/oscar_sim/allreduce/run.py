"""AllReduces of simulated NICs, checked against the host's frame by frame (make sim)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oscar.coding.asc import AscParams
from oscar.coding.asc.params import LANES
from oscar.coding.frame import peek
from oscar.collective.node import ChunkLayout
from oscar.collective.schedules import make_schedule
from oscar.errors import ConfigError
from oscar.timeline.driver import Part
from oscar_hdl.nic.control.registers import BY_NAME
from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.streams.bundles import bit
from oscar_sim.allreduce.expected import Iteration, host_run
from oscar_sim.allreduce.model import model_clocks
from oscar_sim.allreduce.node import SimulatedNode
from oscar_sim.allreduce.software import SoftwareNode
from oscar_sim.allreduce.timeline import rows
from oscar_sim.compiled import CompiledSimulator, copies_of
from oscar_sim.driver.nic_driver import Place, Script, together
from oscar_sim.errors import RtlError
from oscar_sim.verilated import VerilatedSimulator, verilated

RESET_CLOCKS = 8
ROWS_LOG2 = 10, 14  # of a NIC's memory: the smallest one that holds all values
FEW_WORDS_LOG2, STORE_BYTES = 11, 1 << 17  # of a store of frames; bytes where four frames need more
ORDERS = {  # in which values are made
    "plain": "chunk by chunk, from the first",
    "rotated": "what is sent first is made first",
    "pieces": "a sub-frame of all chunks after another, as the time model's driver loads them; direct alone",
}
FP32_BYTES = 4
TOP = "oscar_sim.nic_probe:nic_probe"
Progress = Callable[[int, int], None]


class Wave(NamedTuple):
    """Where a waveform goes, and the clock rate that it shows."""

    file: Path
    mhz: float


class Outcome(NamedTuple):
    """What the AllReduces of one run came to: a row for each, what was wrong, clocks and seconds."""

    rows: list[dict[str, Any]]
    faults: list[str]
    clocks: int
    seconds: float


@dataclass(frozen=True)
class Options:
    """What is run. values: of the gradient bucket; rate: words a clock of a link; latency: clocks.

    driver: registers, a command at a time; list, one an AllReduce; triggered, a list that is given before
    the values are made; or adding, the same, and they are added to what frames of peers have brought. host:
    clocks that it takes to write a register, to read one, and to notice an interrupt. make: clocks in which
    each node makes a value, 0: all are there; order: in which it does (ORDERS). subframes: of each chunk at
    most, as the host cuts it. asks: sums are read while a list runs, and count in the clocks. simulator:
    myhdl, or verilator, of what is converted. seed, warmup: of the training, and its iterations before.
    software: so many of the nodes, the last ones, are in software and take no clocks. floats: NICs get the
    gradients in this format, "float32" or "bfloat16", and quantise them; else the nodes give integers.
    """

    schedule: str = "direct"
    nodes: int = 4
    values: int = 5000
    iterations: int = 2
    workload: str = "numpy-digits"
    units: int = 1
    granule: int = 64
    bits: int = 8
    block_log2: int = 10
    rate: float = 1.0
    latency: int = 20
    driver: str = "registers"
    host: tuple[int, int, int] = (0, 0, 0)
    make: float = 0.0
    order: str = "plain"
    subframes: int = 1
    asks: bool = False
    simulator: str = "myhdl"
    seed: int = 0
    warmup: int = 0
    software: int = 0
    floats: str = ""

    @property
    def bus_bits(self) -> int:
        """Bits of a word of frames: 64 for each unit."""
        return 64 * self.units

    def __post_init__(self) -> None:
        if self.order == "pieces" and self.schedule != "direct":
            raise ConfigError(
                f"values are made in pieces for direct alone, got {self.schedule}: take "
                "--schedule direct, or --order plain or rotated"
            )
        if self.asks and self.driver == "registers":
            raise ConfigError("sums are read while a list runs, got driver registers: leave --asks out")
        if self.floats and self.driver == "triggered":
            raise ConfigError(
                "a list that waits for values which replace others waits for side rows, too, and these come "
                "before floats; got driver triggered: take adding"
            )
        if not 0 <= self.software < self.nodes:
            raise ConfigError(
                f"expected 0 to {self.nodes - 1} of {self.nodes} nodes in software, got {self.software}: "
                "one at least is a NIC"
            )


class Run:
    """The NICs and the network between them."""

    def __init__(
        self, options: Options, progress: Progress = lambda done, total: None, *, wave: Wave | None = None
    ) -> None:
        self.options, self.progress, self.wave = options, progress, wave
        self.asc = AscParams(sent_rows=False, block_log2=options.block_log2)
        self.config, self.expected = host_run(
            self.asc, nodes=options.nodes, values=options.values, iterations=options.iterations,
            schedule=options.schedule, workload=options.workload,
            granule=options.granule, plan="splitter", bits=options.bits, subframes=options.subframes,
            seed=options.seed, warmup=options.warmup, floats=options.floats,
        )  # fmt: skip
        self.schedule = make_schedule(options.schedule, options.nodes, subframes=options.subframes)
        self.width = self.config.quantiser_params(options.nodes).sum_width
        self.rows_log2, self.store_log2 = self._memories()
        self.places: dict[Part, Place] = {}  # of sub-frames that have values, in plan order
        self.clk, self.rst = bit(), bit(1)
        nics = options.nodes - options.software
        self.simulated = [SimulatedNode(self, rank) for rank in range(nics)]
        self.nodes: list[SimulatedNode | SoftwareNode] = [
            *self.simulated, *(SoftwareNode(self, rank) for rank in range(nics, options.nodes))
        ]  # fmt: skip
        for node in self.nodes:
            node.port.peers = [peer.port for peer in self.nodes]
        self.clocks = 0
        self.limit = round((40 + options.make) * options.values) + 100_000  # clocks of an AllReduce
        self.rows: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.counters: list[dict[str, int]] = [{} for _ in self.simulated]

    def _memories(self) -> tuple[int, int]:
        """Return log2 of the rows of a NIC's memory, and of the words of its stores of frames.

        Few sizes: each NIC that is not known takes minutes to convert and compile.
        """
        options = self.options
        block_rows = (1 << options.block_log2) // LANES
        blocks = (options.values >> options.block_log2) + 2 * options.nodes * options.subframes
        largest = max(len(frame) for expected in self.expected for frame in expected.frames)
        fits = 4 * largest <= options.bus_bits // 8 << FEW_WORDS_LOG2
        least = (blocks * block_rows - 1).bit_length()
        rows = next((size for size in ROWS_LOG2 if size >= least), least)
        return rows, FEW_WORDS_LOG2 if fits else (STORE_BYTES // (options.bus_bits // 8)).bit_length() - 1

    def nics(self) -> CompiledSimulator | VerilatedSimulator:
        """Return the NICs."""
        options, clk, rst = self.options, self.clk, self.rst
        sizes = {
            "units": options.units, "bus_bits": options.bus_bits, "sets": table_sets(options.nodes),
            "store_log2": self.store_log2, "rows_log2": self.rows_log2, "block_log2": options.block_log2,
            "granule_log2": options.granule.bit_length() - 1, "floats": bool(options.floats),
        }  # fmt: skip
        if options.simulator == "verilator":
            ports = [{"rst": rst, **node.signals} for node in self.simulated]
            return verilated(TOP, self._step, ports, wave=self.wave is not None, **sizes)
        top = oscar_nic(clk, rst, **self.simulated[0].signals, **sizes)
        return copies_of(top, clk, self._step, [[rst, node.signals] for node in self.simulated])

    def _step(self) -> None:
        """One rising edge of everything that is not hardware."""
        self.clocks += 1
        for node in self.nodes:
            node.tick()
        self.ended = next(self.script, self) is self

    def _perform(self, simulator: CompiledSimulator | VerilatedSimulator, script: Script) -> None:
        """Clock the NICs and what is around them until a script ends."""
        self.script, self.ended, end = script, False, self.clocks + 2 * self.limit
        while not self.ended:
            if self.clocks >= end:
                raise RtlError(f"expected an end within {2 * self.limit:,} clocks, the NICs still wait")
            simulator.run(1)

    def _reset(self, clearing: int, scripts: Iterable[Script]) -> Script:
        """Reset, wait until memories are cleared, then prepare all nodes."""
        self.rst.next = True
        for _ in range(RESET_CLOCKS):
            yield
        self.rst.next = False
        for _ in range(clearing):
            yield
        yield from together(scripts)

    def run(self) -> None:
        """Simulate; results are in rows, counters and faults."""
        nics = self.nics()
        self._perform(nics, self._reset(600, (node.driver.attach() for node in self.simulated)))
        for index, expected in enumerate(self.expected):
            self._place(expected)
            with ExitStack() as stack:
                if self.wave and not index and isinstance(nics, VerilatedSimulator):
                    stack.enter_context(nics.waveform(self.wave.file, mhz=self.wave.mhz))
                self._perform(nics, self._iteration(index, expected))
            if self.faults:
                return
            self._check(index, expected)
            if index + 1 < len(self.expected):
                self._perform(nics, together(node.split() for node in self.simulated))
                self._check_plans(index)
        self._perform(nics, together(self._count(node) for node in self.simulated))
        self.rows[-1]["counters"] = self.counters

    def _iteration(self, index: int, expected: Iteration) -> Script:
        """One AllReduce."""
        start = self.clocks
        running = together(node.start(expected) for node in self.nodes)
        while next(running, self) is not self:
            if self.clocks - start > self.limit:
                self.faults.append(f"iteration {index} did not end")
                return
            if self.clocks % 500 == 0:
                self._tell(index)
            yield
        self._tell(index)

    def _count(self, node: SimulatedNode) -> Script:
        """Read a NIC's counters."""
        self.counters[node.rank] = yield from node.driver.counters()
        saturated = BY_NAME["SATURATED"].offset
        count = yield from node.manager.read(saturated)
        wanted = sum(each.floats.saturated[node.rank] for each in self.expected if each.floats)
        if count != wanted:
            self.faults.append(f"node {node.rank} counts {count} values that saturated, not {wanted}")

    def _check_plans(self, index: int) -> None:
        """Compare the plans that the hardware made with the host's next one."""
        wanted = self.expected[index + 1].plan.bounds
        for node in self.simulated:
            cut = node.planning.plan.bounds
            if cut != wanted:
                self.faults.append(f"node {node.rank} cuts at {cut} after iteration {index}, not {wanted}")
        if all(node.planning.plan.bounds == wanted for node in self.simulated):
            self.rows[-1]["plan"] = wanted

    def _began(self) -> int:
        """Return the clock of the first command of the last AllReduce."""
        return min((c.given for node in self.simulated for c in node.driver.commands), default=0)

    def _place(self, expected: Iteration) -> None:
        """Lay sub-frames into memory, each from the begin of a block on."""
        layout, row = ChunkLayout(expected.plan.bounds, self.options.subframes), 0
        self.places = {}
        for part in product(range(self.options.nodes), range(self.options.subframes)):
            low, high = layout.span(*part)
            if high > low:
                self.places[part] = Place(row, high - low, low)
                row += -(-(high - low) >> self.options.block_log2) * (1 << self.options.block_log2) // LANES

    def place(self, chunk: int, sub: int) -> Place:
        """Return where a sub-frame lies; one without values nowhere."""
        return self.places.get((chunk, sub), Place(0, 0))

    def _tell(self, index: int) -> None:
        """Report how many frames were sent so far, of all iterations."""
        counts = [len(expected.frames) for expected in self.expected]
        sent = sum(len(node.port.frames) for node in self.nodes)
        self.progress(sum(counts[:index]) + sent, sum(counts))

    def _check(self, index: int, expected: Iteration) -> None:
        """Compare every frame and every sum with the host's."""
        sent = sorted(frame for node in self.nodes for frame in node.port.frames)
        wanted = sorted(expected.frames)
        if sent != wanted:
            same = sum(frame in wanted for frame in sent)
            self.faults.append(f"iteration {index}: {same} of {len(wanted)} frames equal, {len(sent)} sent")
        sums = expected.plan.gather(expected.sums)
        right = [bool(np.array_equal(node.sums, sums)) for node in self.nodes]
        if not all(right):
            self.faults.append(
                f"iteration {index}: sums right on nodes {np.flatnonzero(right).tolist()} only"
            )
        self.rows.append(
            {
                "schedule": self.options.schedule,
                "driver": self.options.driver,
                "iteration": index,
                "options": asdict(self.options),
                "moved": expected.moved.frames.tree(),
                "clocks": (clocks := max(node.clocks for node in self.simulated)),
                "model_clocks": (model := model_clocks(self.options, expected.moved)),
                "model_error": model / clocks - 1 if model is not None and clocks else None,
                "frames": len(sent),
                "bytes": sum(map(len, sent)),
                "fp32_bytes": FP32_BYTES * sum(peek(frame).count for frame in sent),
                "equal": sent == wanted and all(right),
                "registers": [node.used for node in self.simulated],
                "spans": [
                    [
                        each._replace(begin=each.begin - node.began, end=each.end - node.began)._asdict()
                        for each in node.port.spans
                    ]
                    for node in self.nodes
                ],
                "work": [
                    [
                        each._replace(begin=each.begin - node.began, end=each.end - node.began)._asdict()
                        for each in node.work.spans
                    ]
                    for node in self.simulated
                ],
                "steps": [rows(node.driver.commands, self._began()) for node in self.simulated],
            }
        )


def table_sets(nodes: int) -> int:
    """Return table sets for a direction: one for each link and table, in a ring or between all."""
    return max(4, 1 << (2 * nodes - 1).bit_length())


def simulate(
    options: Options, progress: Progress = lambda done, total: None, *, wave: Wave | None = None
) -> Run:
    """Run AllReduces and return them; progress(frames sent, of how many) is called often.

    wave: a file for the signals of NIC 0 in the first AllReduce, and the clock rate that it shows.
    """
    run = Run(options, progress, wave=wave)
    run.run()
    return run


def told_of(options: Options, told: Any, wave: Wave | None) -> Outcome:
    """Run AllReduces, their progress put into `told`; return what they come to."""
    begin, stage = time.perf_counter(), f"{options.schedule}, {options.driver}"
    run = simulate(options, lambda done, total: told.put((stage, done, total)), wave=wave)
    return Outcome(run.rows, run.faults, run.clocks, time.perf_counter() - begin)
