"""YAML configuration, validated: an unknown key is refused with the nearest valid one named."""

from oscar.config.experiment import SOFTWARE, Config, load_config
from oscar.config.link import LinkSection, TopologySection
from oscar.config.sections import (
    BURST,
    BY_NETWORK,
    BY_TIME,
    AscSection,
    CompareSection,
    Contender,
    Method,
    PlanSection,
    QuantiserSection,
    ScheduleSection,
    TrainSection,
    TransportSection,
    WorkloadSection,
)

__all__ = [
    "BURST",
    "BY_NETWORK",
    "BY_TIME",
    "SOFTWARE",
    "AscSection",
    "CompareSection",
    "Config",
    "Contender",
    "LinkSection",
    "Method",
    "PlanSection",
    "QuantiserSection",
    "ScheduleSection",
    "TopologySection",
    "TrainSection",
    "TransportSection",
    "WorkloadSection",
    "load_config",
]
