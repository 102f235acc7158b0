// A NIC: a port each way, which says who made a frame and whom it is for.
#include "nic.h"

std::vector<FramePort> frames_in(Vtop& p) { return {FRAME_PORT(s_axis_rx, &p.s_axis_rx_tid)}; }
std::vector<FramePort> frames_out(Vtop& p) { return {FRAME_PORT(m_axis_tx, &p.m_axis_tx_tdest)}; }
