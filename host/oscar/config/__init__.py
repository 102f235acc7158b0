"""YAML configuration, validated: an unknown key is refused with the nearest valid one named."""

from oscar.config.experiment import SOFTWARE, Config
from oscar.config.link import LinkSection
from oscar.config.methods import CompareSection, Contender, Method
from oscar.config.reading import load_config
from oscar.config.sections import (
    BURST,
    AscSection,
    PlanSection,
    QuantiserSection,
    RingSection,
    TrainSection,
    TransportSection,
    WorkloadSection,
)

__all__ = [
    "BURST",
    "SOFTWARE",
    "AscSection",
    "CompareSection",
    "Config",
    "Contender",
    "LinkSection",
    "Method",
    "PlanSection",
    "QuantiserSection",
    "RingSection",
    "TrainSection",
    "TransportSection",
    "WorkloadSection",
    "load_config",
]
