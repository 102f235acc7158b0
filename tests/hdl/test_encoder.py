"""The encoding unit against the reference: bytes, entries, counts, whatever memory and takers do."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oscar.coding.asc.params import TABLE_ROWS
from oscar_sim.seeds import dice
from support.encoder_bench import EncoderBench, SentBlock, check, random_table

pytestmark = pytest.mark.usefixtures("seed")

KINDS = (
    "noise", "dead", "constant", "wide", "single", "nearly constant", "constant and dead", "sparse", "steps",
)  # fmt: skip


def values_of(kind: str, count: int, rng: random.Random) -> list[int]:
    """Return values of a kind."""
    scale = rng.choice((0.3, 1, 2, 5, 20, 60))
    noise = [max(-191, min(191, round(rng.gauss(0, scale)))) for _ in range(count)]
    if kind == "constant":
        return [rng.choice((0, 7, -1, 150, -32768))] * count
    if kind == "single":
        return [0] * (count - 1) + [rng.choice((1, -1, -32768, 32767))]
    if kind == "nearly constant":
        values = [rng.choice((0, 3, -1, 1000))] * count
        values[rng.randrange(count)] += 1
        return values
    if kind == "constant and dead":
        return [7 * (at < count // 2 or at // 32 % 3 == 0) for at in range(count)]
    if kind == "wide":
        return [rng.randrange(-1 << bits, 1 << bits) for bits in rng.choices(range(16), k=count)]
    if kind == "steps":  # rows of all widths
        widths = rng.choices(range(16), k=count // 32 + 1)
        return [rng.randrange(-1 << widths[i >> 5], 1 << widths[i >> 5]) for i in range(count)]
    if kind == "sparse":
        noise = [rng.choice((0, 0, 0, 0, 1, -1)) for _ in range(count)]
    if kind in ("dead", "sparse"):
        for size, share in ((1024, 0.4), (32, rng.random())):
            for at in range(0, count, size):
                if rng.random() < share:
                    noise[at : at + size] = [0] * len(noise[at : at + size])
    return noise


def random_block(kind: str, count: int, tables: list, rng: random.Random) -> SentBlock:
    """Return a block of a kind."""
    base, spread, bank = rng.randrange(16), rng.choice((0, 1, 6)), rng.randrange(2)
    positions = [max(0, min(15, base + rng.randint(-spread, spread))) for _ in range(count)]
    return SentBlock(values_of(kind, count, rng), positions, tables[bank], rng.randrange(3), bank)


def ready_bench(rng: random.Random, **chances: float) -> tuple[EncoderBench, list]:
    """Return a bench with two banks of tables."""
    bench = EncoderBench(rng, **chances)
    tables = [random_table(rng) for _ in range(2)]
    for bank in range(2):
        bench.load(tables[bank], bank)
    return bench, tables


def check_all(bench: EncoderBench, blocks: list[SentBlock]) -> None:
    """Compare all results, bytes and counts with the reference."""
    streams = iter(bench.streams)
    for block, result in zip(blocks, bench.results, strict=True):
        check(block, result, None if result.constant else next(streams))
    assert next(streams, None) is None
    counts = [block.counts() for block in blocks]
    for q in range(TABLE_ROWS):
        assert bench.counted[q] == [sum(c) for c in zip(*(count[q] for count in counts), strict=True)], q


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_equal_the_reference(kind: str) -> None:
    rng = dice(f"encoder {kind}")
    bench, tables = ready_bench(
        rng,
        no_memory=rng.choice((0, 0.5, 0.97)),
        no_ready=rng.choice((0, 0.2, 0.8)),
    )
    sizes = (1, rng.randrange(2, 33), rng.randrange(33, 500), rng.randrange(1025, 1500))
    blocks = [random_block(kind, size, tables, rng) for size in rng.sample(sizes, 4)]
    bench.code(blocks)
    check_all(bench, blocks)


def test_dense_blocks_take_a_clock_a_value() -> None:
    rng = dice("encoder dense")
    bench, tables = ready_bench(rng)
    blocks = [random_block("noise", 3072, tables, rng) for _ in range(2)]
    for block in blocks:
        block.thinning = 2
    begins = bench.sim.clocks
    bench.code(blocks)
    check_all(bench, blocks)
    assert 2 * 3072 / (bench.done_at - begins) > 0.94


def test_a_block_of_128_groups_is_passed_over() -> None:
    rng = dice("encoder big")
    bench, tables = ready_bench(rng)
    values = [0] * (1 << 17)
    for _ in range(6):
        values[rng.randrange(len(values))] = rng.randrange(1, 30000)
    blocks = [SentBlock(values, [rng.randrange(16) for _ in values], tables[0], 1)]
    bench.code(blocks)
    check_all(bench, blocks)
    assert bench.sim.clocks < 40000


def test_bytes_wait_for_a_taker() -> None:
    rng = dice("encoder wait")
    bench, tables = ready_bench(rng, no_ready=1.0)
    blocks = [random_block("wide", 1500, tables, rng)]
    bench.queue += blocks
    bench.sim.run(4000)
    assert not bench.results
    bench.no_ready = 0.5
    bench.code([], results=1)
    check_all(bench, blocks)


def test_a_reset_forgets_the_block() -> None:
    rng = dice("encoder reset")
    bench, tables = ready_bench(rng, no_ready=0.3)
    for _ in range(6):
        kind = rng.choice(KINDS)
        bench.queue.append(random_block(kind, rng.randrange(1, 500), tables, rng))
        bench.sim.run(rng.randrange(1, 400))
        bench.reset()
        blocks = [random_block(rng.choice(KINDS), rng.randrange(1, 200), tables, rng)]
        bench.code(blocks)
        check_all(bench, blocks)
        bench.sim.run(rng.randrange(64))


def test_wrong_descriptors_are_bad_and_end() -> None:
    rng = dice("encoder bad")
    bench, tables = ready_bench(rng, no_memory=0.5)
    for _ in range(4):
        block = random_block("steps", rng.randrange(64, 1500), tables, rng)
        for row in block.rows:
            row.row_class = rng.randrange(16)
        bench.forget()
        bench.code([block])
        result = bench.results[0]
        assert result.constant or len(bench.streams[0]) == result.size
        assert result.bad == block.impossible(result.seeds)
    bench.forget()
    blocks = [random_block("dead", 700, tables, rng)]
    bench.code(blocks)
    check_all(bench, blocks)


CONVERT = """
import sys, warnings
from oscar_hdl.coder.encode.encoder import encoder
from oscar_hdl.coder.ports import CountPort, EncoderJob, TableWrites, SourcePort
from oscar_hdl.streams.bundles import Stream, bit, word
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message="(?s).*Signal is driven but not read")
ports = bit(), bit(), word(5), EncoderJob(), TableWrites(), SourcePort(), CountPort(), Stream(16, keep=2)
encoder(*ports).convert(hdl="Verilog", testbench=False, path=sys.argv[1], name="encoder", header="",
                        initial_values=True, no_myhdl_header=True)
"""
INPUTS = (
    "rst:1 phase:5 job_start:1 job_bank:1 job_thinning:2 job_values:18 tables_enable:1 tables_address:8 "
    "tables_data:50 source_ok:1 source_data:19 source_mean:4 m_axis_bytes_tready:1"
)
OUTPUTS = (
    "job_idle:1 job_done:1 job_bad:1 job_constant:1 job_value:16 job_bits:4 job_seeds:3 job_first:7 "
    "job_last:7 job_bytes:19 source_take:1 source_header:1 source_row:12 counts_valid:1 "
    "counts_address:9 counts_step:2 m_axis_bytes_tdata:16 m_axis_bytes_tkeep:2 m_axis_bytes_tlast:1 "
    "m_axis_bytes_tvalid:1"
)


def ports_of(text: str) -> list[tuple[str, int]]:
    """Return names and widths."""
    return [(name, int(bits)) for name, _, bits in (item.partition(":") for item in text.split())]


def packed(bench: EncoderBench, text: str) -> int:
    """Return all these ports of the bench as one number, the first one uppermost."""
    bundles = {
        "job": bench.job,
        "tables": bench.tables,
        "source": bench.source,
        "counts": bench.counts,
        "m_axis_bytes": bench.stream,
    }
    value = 0
    for name, bits in ports_of(text):
        bundle = next((b for b in bundles if name.startswith(b + "_")), None)
        signal = getattr(bundles[bundle], name[len(bundle) + 1 :]) if bundle else getattr(bench, name)
        value = value << bits | int(signal)
    return value


def recorded(rng: random.Random) -> list[str]:
    """Return inputs and outputs of some clocks, one hexadecimal number of 256 bits for each."""
    bench = EncoderBench(rng, no_ready=0.3, no_memory=0.5)
    lines: list[str] = []
    bench.watch = lambda b: lines.append(f"{packed(b, INPUTS) << 128 | packed(b, OUTPUTS):064x}")
    tables = [random_table(rng)] * 2
    bench.load(tables[0], 0)
    bench.load(tables[1], 1)
    blocks = [random_block(kind, rng.randrange(1, 300), tables, rng) for kind in rng.sample(KINDS, 3)]
    bench.code(blocks[:2])
    bench.queue.append(blocks[2])
    bench.sim.run(rng.randrange(200))
    bench.reset()
    bench.code(blocks[2:])
    return lines


def test_the_converted_verilog_does_the_same(tmp_path: Path) -> None:
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is not installed")
    lines = recorded(dice("encoder verilog"))
    (tmp_path / "ports.hex").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run(
        [sys.executable, "-c", CONVERT, tmp_path], check=True, env=environment, cwd=Path(__file__).parents[2]
    )
    made = (tmp_path / "encoder.v").read_text()
    wires, begins = [], []
    for text, at in ((INPUTS, 128), (OUTPUTS, 0)):
        at += sum(bits for _, bits in ports_of(text))
        for name, bits in ports_of(text):
            at -= bits
            given = f" = line[{at + bits - 1}:{at}]" if text is INPUTS else ""
            wires.append(f"wire [{bits - 1}:0] {name}{given};")
            # Ports have no initial values: registers get those of the first clock.
            if text is OUTPUTS and re.search(rf"^reg .*\b{name};", made, re.MULTILINE):
                begins.append(f"dut.{name} = line[{at + bits - 1}:{at}];")
    outs = [name for name, _ in ports_of(OUTPUTS)]
    width = sum(bits for _, bits in ports_of(OUTPUTS))
    ports = ", ".join(f".{name}({name})" for name in ["clk", *(n for n, _ in ports_of(INPUTS)), *outs])
    (tmp_path / "bench.v").write_text(
        f"""module bench;
        reg clk = 0; reg [255:0] m[0:{len(lines) - 1}]; reg [255:0] line; integer i;
        {" ".join(wires)}
        encoder dut({ports});
        wire [{width - 1}:0] all = {{{", ".join(outs)}}};
        initial begin
            $readmemh("ports.hex", m); line = m[0]; {" ".join(begins)}
            for (i = 0; i < {len(lines)}; i = i + 1) begin
                line = m[i]; #1;
                if (all !== line[{width - 1}:0]) begin
                    $display("clock %0d: %h, not %h", i, all, line); $finish;
                end
                clk = 1; #1; clk = 0;
            end
            $display("equal"); $finish;
        end
        endmodule"""
    )
    subprocess.run(["iverilog", "-g2012", "-o", "bench", "bench.v", "encoder.v"], check=True, cwd=tmp_path)
    done = subprocess.run(["vvp", "bench"], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "equal"
