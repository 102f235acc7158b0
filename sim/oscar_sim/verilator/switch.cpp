// A slice of a switch between four ports: where a frame comes says who made it.
#include "nic.h"

std::vector<FramePort> frames_in(Vtop& p) {
  return {FRAME_PORT(s_axis_rx_0, nullptr),
          FRAME_PORT(s_axis_rx_1, nullptr),
          FRAME_PORT(s_axis_rx_2, nullptr),
          FRAME_PORT(s_axis_rx_3, nullptr)};
}
std::vector<FramePort> frames_out(Vtop& p) {
  return {FRAME_PORT(m_axis_tx_0, nullptr),
          FRAME_PORT(m_axis_tx_1, nullptr),
          FRAME_PORT(m_axis_tx_2, nullptr),
          FRAME_PORT(m_axis_tx_3, nullptr)};
}
