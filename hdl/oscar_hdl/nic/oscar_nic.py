"""The NIC: lanes with their links, registers, interrupt."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.axi_lite_registers import axi_lite_registers
from oscar_hdl.frame_merge import frame_merge
from oscar_hdl.nic_engine import Report, nic_engine
from oscar_hdl.params import COUNT_BITS, LaneParams
from oscar_hdl.nic.registers import BY_NAME, ID_VALUE, STORED, VERSION
from oscar_hdl.stream_fork import stream_fork
from oscar_hdl.streams.bundles import Stream, bit, word


class LanePorts:
    """The value streams of a lane, and the requests for some of them once more."""

    def __init__(self) -> None:
        self.s_axis_class, self.s_axis_local, self.m_axis_sum = Stream(4), Stream(16), Stream(16)
        self.s_axis_redo = Stream(20)
        self.redo_valid, self.redo_ready = bit(), bit()
        self.redo_first, self.redo_count = word(COUNT_BITS), word(COUNT_BITS)


@block
def oscar_nic(
    clk: Any, rst: Any, s_axil: Any, irq: Any, s_axis_rx: Any, m_axis_tx: Any, s_axis_class: Any,
    s_axis_local: Any, m_axis_sum: Any, redo_valid: Any, redo_ready: Any, redo_first: Any, redo_count: Any,
    s_axis_redo: Any, lane1: Any = None, lane2: Any = None, lane3: Any = None, *, params: LaneParams,
    sets: int = 16, depth_log2: int = 12,
) -> Any:  # fmt: skip
    """Code and decode what a driver asks for (docs/registers.md).

    s_axil: AxiLite(8). irq: level. s_axis_rx, m_axis_tx: Stream(16, keep=2), frames of docs/protocol.md,
    two bytes a clock. s_axis_class to s_axis_redo: as nic_lane, of lane 0. lane1, lane2, lane3: LanePorts of
    the others; there are 1, 2 or 4. Frames of sub-frame s belong to lane s modulo their number, and are sent
    whole, lanes in turn.

    sets: table sets of a lane, a power of two; depth_log2: a frame store has 2^depth_log2 16-bit words.
    """
    more = [ports for ports in (lane1, lane2, lane3) if ports is not None]
    LANES = 1 + len(more)
    if LANES not in (1, 2, 4):
        raise ValueError(f"a NIC has 1, 2 or 4 lanes, got {LANES}")
    CONFIG_VALUE = BY_NAME["CONFIG"].pack(
        lanes=LANES,
        block_log2=params.block_log2,
        sets_log2=sets.bit_length() - 1,
        depth_log2=depth_log2,
        width_max=params.width_max,
        version=VERSION,
    )
    ID, CONFIG, STATUS = BY_NAME["ID"].index, BY_NAME["CONFIG"].index, BY_NAME["STATUS"].index
    COMMAND, ABORT = BY_NAME["COMMAND"].index, BY_NAME["ABORT"].index
    PENDING, LOST = BY_NAME["STATUS"].field("pending").low, BY_NAME["IRQ_STATUS"].field("lost").low

    values = [word(32) for _ in STORED]
    chosen, count, step, chunk = (values[STORED.index(name)] for name in ("LANE", "COUNT", "STEP", "CHUNK"))
    sub_width, sequence, sets_used = (values[STORED.index(n)] for n in ("SUB_WIDTH", "SEQUENCE", "SETS"))
    wr_strobe, wr_index, wr_data = bit(), word(6), word(32)
    rd_index, rd_value = word(6), word(32)
    pending, lost, command, abort, events = bit(), bit(), word(32), word(32), word(32)
    # What the engines tell passes from each to the next; the first gets nothing.
    reports = [Report() for _ in range(LANES + 1)]
    first, last = reports[0], reports[LANES]
    # Frames: element 2 i is what is shared by lanes i and up, 2 i + 1 is of lane i alone.
    rx = [s_axis_rx, *(Stream(16, keep=2) for _ in range(2 * LANES - 2))]
    tx = [m_axis_tx, *(Stream(16, keep=2) for _ in range(2 * LANES - 2))]

    parts = [
        axi_lite_registers(
            clk, rst, s_axil, values, wr_strobe, wr_index, wr_data, rd_index, rd_value, events, irq
        ),
        nic_engine(
            clk, rst, rx[min(1, LANES - 1)], tx[min(1, LANES - 1)], s_axis_class, s_axis_local, m_axis_sum,
            redo_valid, redo_ready, redo_first, redo_count, s_axis_redo, pending, command, count, step, chunk,
            sub_width, sequence, sets_used, abort, chosen, rd_index, reports[0], reports[1], params=params,
            sets=sets, depth_log2=depth_log2, lanes=LANES, lane=0,
        ),
    ]  # fmt: skip
    for i in range(LANES - 1):
        parts.append(stream_fork(rx[2 * i], rx[2 * i + 1], rx[2 * i + 2]))
        parts.append(frame_merge(clk, rst, tx[2 * i + 1], tx[2 * i + 2], tx[2 * i]))
        own = min(2 * i + 3, 2 * LANES - 2)
        parts.append(
            nic_engine(
                clk, rst, rx[own], tx[own], more[i].s_axis_class, more[i].s_axis_local, more[i].m_axis_sum,
                more[i].redo_valid, more[i].redo_ready, more[i].redo_first, more[i].redo_count,
                more[i].s_axis_redo, pending, command, count, step, chunk, sub_width, sequence, sets_used,
                abort, chosen, rd_index, reports[i + 1], reports[i + 2], params=params, sets=sets,
                depth_log2=depth_log2, lanes=LANES, lane=i + 1,
            )
        )  # fmt: skip

    @always_comb
    def gather():
        bits = modbv(0)[32:]
        bits[:] = last.events
        bits[LOST] = lost
        events.next = bits

    @always(clk.posedge)
    def control():
        first.accepted.next = False
        first.status.next = 0
        first.events.next = 0
        first.shown.next = 0
        lost.next = False
        abort.next = 0
        if last.accepted:
            pending.next = False
        if wr_strobe and wr_index == COMMAND:
            if pending or wr_data[11:8] >= LANES:
                lost.next = True
            else:
                pending.next = True
                command.next = wr_data
        if wr_strobe and wr_index == ABORT:
            abort.next = wr_data
        if rst:
            pending.next = False

    @always(clk.posedge)
    def show():
        rd_value.next = last.shown
        if rd_index == ID:
            rd_value.next = ID_VALUE
        elif rd_index == CONFIG:
            rd_value.next = CONFIG_VALUE
        elif rd_index == STATUS:
            rd_value.next = last.status
            rd_value.next[PENDING] = pending

    return parts, gather, control, show
