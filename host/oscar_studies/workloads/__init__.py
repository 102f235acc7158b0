"""What makes the gradients: the workload seam, its registry, and the workloads that ship."""

from oscar_studies.workloads.base import Workload, exact_mean
from oscar_studies.workloads.registry import WORKLOADS, make_workload

__all__ = ["WORKLOADS", "Workload", "exact_mean", "make_workload"]
