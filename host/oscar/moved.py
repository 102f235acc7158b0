"""Modules that have moved: their old names import for one release, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

REMOVED_IN = "0.4"  # the release in which the old names go
MOVED = {  # old name: new name, also of the modules below a package
    "oscar.adapters.fsdp.shards": "oscar.adapters.fsdp.exchange",
    "oscar.adapters.torch.ends": "oscar.adapters.torch.arguments",
    "oscar.adapters.torch.hook": "oscar.adapters.torch",
    "oscar.adapters.torch.merging": "oscar_studies.merging",
    "oscar.adapters.torch.models": "oscar.adapters.torch.layout",
    "oscar.adapters.torch.on_gpu": "oscar.adapters.torch.staging",
    "oscar.adapters.torch.plain": "oscar.adapters.torch.bypass",
    "oscar.adapters.torch.profile": "oscar.adapters.torch.tuning",
    "oscar.adapters.torch.retune": "oscar.adapters.torch.policies",
    "oscar.adapters.torch.sparse": "oscar.adapters.torch.reduction",
    "oscar.adapters.torch.taken": "oscar.adapters.torch.staging",
    "oscar.adapters.torch.totals": "oscar.adapters.torch.jobs",
    "oscar.adapters.torch.watch": "oscar.adapters.torch.jobs",
    "oscar.blas": "oscar.cores",
    "oscar.cli.allreduce": "oscar_studies.cli.allreduce",
    "oscar.cli.compare": "oscar_studies.cli.compare",
    "oscar.cli.html": "oscar_studies.cli.html",
    "oscar.cli.report": "oscar_studies.cli.report",
    "oscar.cli.scale": "oscar_studies.cli.scale",
    "oscar.cli.trace": "oscar_studies.cli.trace",
    "oscar.cli.train": "oscar_studies.cli.train",
    "oscar.cli.tune": "oscar_studies.cli.tune",
    "oscar.cli.worker": "oscar_studies.cli.worker",
    "oscar.coding.array_file": "oscar.coding.arrays",
    "oscar.coding.asc.compiled.count_kernels": "oscar.coding.asc.compiled.survey_kernels",
    "oscar.coding.asc.gpu": "oscar_gpu",
    "oscar.coding.baselines": "oscar_studies.codecs",
    "oscar.coding.baselines.blocks": "oscar.coding.plain",
    "oscar.coding.baselines.order0_kernels": "oscar_studies.codecs.order0",
    "oscar.coding.baselines.raw": "oscar.coding.plain",
    "oscar.coding.baselines.registry": "oscar.coding.registry",
    "oscar.coding.baselines.zstd": "oscar.coding.plain",
    "oscar.coding.delta.sources": "oscar.coding.delta.messages",
    "oscar.coding.index.gaps": "oscar.coding.index.plain",
    "oscar.coding.index.popularity": "oscar.coding.index.popular",
    "oscar.coding.index.registry": "oscar.coding.index",
    "oscar.coding.index.roaring": "oscar.coding.index.plain",
    "oscar.coding.tensors": "oscar.coding.message",
    "oscar.collective.association": "oscar.collective.local",
    "oscar.collective.gather": "oscar.collective.ring",
    "oscar.collective.hand_over": "oscar.collective.local",
    "oscar.collective.stats": "oscar.collective.frames",
    "oscar.config.methods": "oscar.config.sections",
    "oscar.config.reading": "oscar.config.experiment",
    "oscar.config.schedule": "oscar.config.sections",
    "oscar.config.topology": "oscar.config.link",
    "oscar.numerics.dtypes": "oscar.numerics.tensors",
    "oscar.numerics.gpu": "oscar_gpu",
    "oscar.numerics.gpu.exact": "oscar_gpu.quantiser",
    "oscar.numerics.gpu.kernels": "oscar_gpu.quantiser_kernels",
    "oscar.numerics.rounding": "oscar.numerics.saturation",
    "oscar.numerics.sizes": "oscar.numerics.tensors",
    "oscar.numerics.sketch.vectors": "oscar.numerics.sketch.kernels",
    "oscar.numerics.value_kernels": "oscar.numerics.value_steps",
    "oscar.planning.schedule_scaling": "oscar.planning.schedule_figure",
    "oscar.planning.synthesis.bound": "oscar.planning.synthesis.problem",
    "oscar.planning.synthesis.contiguity": "oscar.planning.synthesis.ordering",
    "oscar.planning.synthesis.greedy": "oscar.planning.synthesis.ordering",
    "oscar.planning.tuning.descent": "oscar.planning.tuning.select",
    "oscar.planning.tuning.espresso": "oscar_studies.espresso",
    "oscar.planning.tuning.merge": "oscar_studies.merging",
    "oscar.planning.tuning.policy_file": "oscar.planning.tuning.policy",
    "oscar.planning.tuning.reasons": "oscar.planning.tuning.select",
    "oscar.planning.tuning.traces": "oscar_studies.profiler_traces",
    "oscar.reducers.gradients": "oscar.reducers.checks",
    "oscar.reducers.greeting": "oscar.reducers.party",
    "oscar.reducers.overflow": "oscar.reducers.checks",
    "oscar.reducers.sampled": "oscar_studies.sampled",
    "oscar.schemes.dynamiq": "oscar_studies.peers.dynamiq",
    "oscar.schemes.exact_gpu": "oscar_gpu.exact",
    "oscar.schemes.methods": "oscar.schemes.registry",
    "oscar.schemes.owned": "oscar.schemes.base",
    "oscar.schemes.powersgd": "oscar_studies.peers.powersgd",
    "oscar.schemes.rotation": "oscar_studies.peers.rotation",
    "oscar.schemes.s2": "oscar_studies.peers.s2",
    "oscar.schemes.sketched_sgd": "oscar_studies.peers.sketched_sgd",
    "oscar.schemes.sparse.clt_k": "oscar_studies.peers.clt_k",
    "oscar.schemes.sparse.gathered": "oscar.schemes.sparse.values",
    "oscar.schemes.sparse.grains": "oscar.schemes.sparse.partitions",
    "oscar.schemes.sparse.hashing": "oscar.schemes.sparse.partitions",
    "oscar.schemes.sparse.held_threshold": "oscar_studies.peers.held_threshold",
    "oscar.schemes.sparse.ok_topk": "oscar_studies.peers.ok_topk",
    "oscar.schemes.sparse.own_sets": "oscar.schemes.sparse.exchanges",
    "oscar.schemes.sparse.ranges": "oscar.schemes.sparse.micro",
    "oscar.schemes.sparse.shared_threshold": "oscar.schemes.sparse.micro",
    "oscar.schemes.sparse.sidco": "oscar_studies.peers.sidco",
    "oscar.schemes.stochastic": "oscar_studies.peers.stochastic",
    "oscar.schemes.thc": "oscar_studies.peers.thc",
    "oscar.studies": "oscar_studies",
    "oscar.studies.array_file": "oscar.coding.arrays",
    "oscar.studies.arrays": "oscar.coding.arrays",
    "oscar.studies.comparison_figure": "oscar_studies.comparison_report",
    "oscar.studies.comparison_files": "oscar_studies.comparison_report",
    "oscar.studies.comparison_table": "oscar_studies.comparison_report",
    "oscar.studies.contest_figure": "oscar_studies.contest_report",
    "oscar.studies.plotting": "oscar.plotting",
    "oscar.studies.schedule_figure": "oscar.planning.schedule_figure",
    "oscar.studies.schedule_scaling": "oscar.planning.schedule_figure",
    "oscar.timeline.graph": "oscar.timeline.engine",
    "oscar.timeline.overlap": "oscar_studies.overlap",
    "oscar.timeline.perfetto": "oscar_studies.perfetto",
    "oscar.timeline.shares": "oscar.timeline.choose",
    "oscar.timeline.sizes": "oscar.timeline.lowering",
    "oscar.timeline.spans": "oscar.timeline.replay",
    "oscar.transports.addresses": "oscar.transports.introductions",
    "oscar.transports.lines": "oscar.transports.tcp",
    "oscar.transports.notices": "oscar.transports.waits",
    "oscar.transports.padding": "oscar.transports.keyed",
    "oscar.workloads": "oscar_studies.workloads",
}


def new_name(old: str) -> str | None:
    """Return the name of a module that has moved, None for any other.

    >>> new_name("oscar.workloads.text"), new_name("oscar.studies.plotting"), new_name("oscar.config")
    ('oscar_studies.workloads.text', 'oscar.plotting', None)
    """
    package, rest = old, ""
    while package not in MOVED:
        package, dot, name = package.rpartition(".")
        if not dot:
            return None
        rest = f".{name}{rest}"
    return MOVED[package] + rest


class _Alias(Loader):
    """Makes an old name another name of the module at its new place."""

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system; `exec_module` puts another one in its place."""

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, importlib.import_module(self._new)
        text = f"{old} is {self._new} now; the old name goes in release {REMOVED_IN}"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        if not hasattr(new, "__path__"):
            sys.modules[old] = new
            return
        # Modules of one package have gone to several, so the old package looks for each of them.
        module.__path__ = []
        vars(module)["__getattr__"] = partial(_of_package, old, new)


def _of_package(old: str, new: ModuleType, name: str) -> Any:
    """Return an attribute of a package that has moved, or a module that was in it."""
    if hasattr(new, name):
        return getattr(new, name)
    if name.startswith("__") or new_name(f"{old}.{name}") is None:
        raise AttributeError(f"module {old!r} has no attribute {name!r}")
    try:
        return importlib.import_module(f"{old}.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module {old!r} has no attribute {name!r}") from error


class _Finder(MetaPathFinder):
    """Finds modules by their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = new_name(fullname) if fullname.startswith("oscar.") else None
        return None if new is None else ModuleSpec(fullname, _Alias(new))


def install() -> None:
    """Let old names be imported. First in line: the parent of an old name may be a package that is there."""
    sys.meta_path.insert(0, _Finder())
