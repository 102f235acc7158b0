"""The plain sections: workload, quantiser, coder, plan, ring, transport, training."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from oscar.coding.asc.params import AscParams, ContextMode, TableMode
from oscar.config.base import MOST, Section, one_of
from oscar.numerics.bandit import ARMS, check_arms
from oscar.numerics.plans import PLANS, cuts_of
from oscar.numerics.quantiser import MAX_BITS, MIN_BITS, QuantiserParams, Rounding, Scale, Step, default_bits
from oscar.transports.padding import LEAST_PERCENT, MOST_PERCENT, PAD_NEEDS_SECURITY

BURST = 4  # consecutive iterations with the ring: link tables catch up, and the last iteration is measured


class WorkloadSection(Section):
    """Where gradients come from: a workload by name with its options, or a recorded trace.

    warmup: iterations to train with the float mean before gradients are measured; auto: the workload's own
    number (`oscar_studies.workloads.registry`), and none for a trace. A training by one method begins without
    it.
    """

    name: str = "numpy-lm"
    options: dict[str, Any] = Field(default_factory=dict)
    trace: str | None = None
    warmup: int | Literal["auto"] = "auto"

    @field_validator("warmup", mode="before")
    @classmethod
    def _warmup(cls, warmup: Any) -> Any:
        if warmup != "auto" and not (type(warmup) is int and 0 <= warmup <= MOST):
            raise ValueError(f"expected auto or a whole number from 0 to {MOST}")
        return warmup

    @model_validator(mode="after")
    def _valid(self) -> WorkloadSection:
        if self.trace is not None and self.warmup not in ("auto", 0):
            raise ValueError(
                f"warmup: expected auto or 0 with a trace, whose gradients are recorded, got {self.warmup}; "
                "record the trace with --warmup"
            )
        return self


class QuantiserSection(Section):
    """See oscar.numerics.quantiser.QuantiserParams. Codecs of integers use it.

    controller: "bandit" chooses one of `arms` for coarseness by what iterations take, and begins with the one
    nearest to it; "fixed" leaves it.
    """

    scale: Scale = "sigma"
    coarseness: float = 0.125
    bits: int | Literal["auto"] = "auto"
    rounding: Rounding = "nearest"
    error_feedback: bool = False
    step: Step = "tensor"
    controller: Literal["fixed", "bandit"] = "fixed"
    arms: tuple[float, ...] = Field(default=ARMS, strict=False)

    @field_validator("bits", mode="before")
    @classmethod
    def _bits(cls, bits: Any) -> Any:
        if bits != "auto" and not (type(bits) is int and MIN_BITS <= bits <= MAX_BITS):
            raise ValueError(f"expected auto or a whole number from {MIN_BITS} to {MAX_BITS}")
        return bits

    @model_validator(mode="after")
    def _valid(self) -> QuantiserSection:
        self.params(nodes=1, seed=0)
        check_arms(self.arms)
        if self.controller == "bandit" and self.scale != "sigma":
            raise ValueError(f"controller: bandit chooses step / sigma; set scale to sigma, not {self.scale}")
        if self.controller == "bandit" and self.step == "value":
            raise ValueError("controller: bandit moves the steps of tensors; set step to tensor, not value")
        return self

    @property
    def said(self) -> str:
        """What differs between two sections that do not do the same; arms, where one of them is chosen."""
        none = {"controller", "arms"} if self.controller == "fixed" else set[str]()
        none |= {"step"} if self.step == "tensor" else set()
        return " ".join(f"{key}={value!r}" for key, value in self if key not in none)

    def params(self, *, nodes: int, seed: int) -> QuantiserParams:
        """Return the quantiser's parameters for sums over `nodes`."""
        bits = default_bits(nodes) if self.bits == "auto" else self.bits
        own = self.model_dump(exclude={"controller", "arms"})
        return QuantiserParams(**{**own, "bits": bits}, seed=seed)


GONE = {  # keys of the section asc that format 3 of the coder has no more
    "interval_log2": "tables change once a frame; for smaller pieces set schedule.subframes",
    "map": "contexts are fixed; for own tables where they pay set sent_rows: true",
}


class AscSection(Section):
    """See oscar.coding.asc.AscParams."""

    context: ContextMode = "class"
    tables: TableMode = "step"
    sent_rows: bool = True
    block_log2: int = 0

    @model_validator(mode="before")
    @classmethod
    def _gone(cls, data: Any) -> Any:
        for key in GONE.keys() & data.keys() if isinstance(data, dict) else ():
            raise ValueError(f"the key {key} is gone: {GONE[key]}, and leave {key} out")
        return data

    @field_validator("context", mode="before")
    @classmethod
    def _renamed(cls, context: Any) -> Any:
        if context in ("both", "position", "neighbour"):
            raise ValueError(
                f"context {context} is gone: write class, which tells values apart better, or none"
            )
        return context

    @model_validator(mode="after")
    def _valid(self) -> AscSection:
        AscParams(**self.model_dump())
        return self


class PlanSection(Section):
    """Chunk plan and its block size in values.

    shares: how much of the cost each chunk has, a number for each; auto: what lets the busiest port of a
    direct schedule be free earliest, by the topology; null: equal.
    """

    name: str = "interleave"
    granule: int = Field(default=256, ge=1, le=1 << 20)
    shares: tuple[float, ...] | Literal["auto"] | None = None

    @field_validator("shares", mode="before")
    @classmethod
    def _whole(cls, shares: Any) -> Any:
        if shares is None or shares == "auto":
            return shares
        numbers = isinstance(shares, (list, tuple)) and all(type(s) in (int, float) for s in shares)
        if not numbers:
            raise ValueError("expected auto, or a list of a number for each chunk")
        cuts_of(tuple(shares))
        return tuple(float(share) for share in shares)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return one_of("plan", name, PLANS)


class TransportSection(Section):
    """Ranks in separate processes: how long one may wait, what a death means, and encryption.

    pad: by how many per cent at most encrypted messages are lengthened, so that sizes tell less; none (0), or
    1 to 100.
    """

    timeout_s: float = Field(default=60.0, gt=0, le=1e6)
    survive: bool = False
    security: Literal["none", "aes-gcm"] = "none"
    key: str | None = None
    pad: float = 0.0

    @property
    def given_timeout_s(self) -> float | None:
        """`timeout_s` if it was set, else None: the hooks of torch then take the process group's timeout."""
        return self.timeout_s if "timeout_s" in self.model_fields_set else None

    @field_validator("pad", mode="before")
    @classmethod
    def _percent(cls, pad: Any) -> Any:
        if pad in (None, "none"):
            return 0.0
        number = isinstance(pad, (int, float)) and not isinstance(pad, bool)
        if not (number and (pad == 0 or LEAST_PERCENT <= pad <= MOST_PERCENT)):
            raise ValueError("expected none, or a number of per cent from 1 to 100")
        return pad

    @model_validator(mode="after")
    def _valid(self) -> TransportSection:
        if self.pad and self.security == "none":
            raise ValueError(
                f"frames should be padded, but transport.security is none: {PAD_NEEDS_SECURITY}, "
                "or transport.pad to none"
            )
        if self.key is not None and self.security == "none":
            raise ValueError(
                "a key is named, but transport.security is none and frames would be plain text: "
                "set transport.security to aes-gcm, or leave the key out"
            )
        return self


class TrainSection(Section):
    """How `oscar train` runs; nothing here changes a weight.

    compute_ms: of one node's forward and backward pass in the time model; null: as measured on this machine.
    """

    evaluate_every: int = Field(default=25, ge=0)
    checkpoint_every: int = Field(default=100, ge=0)
    ring_every: int = Field(default=1, ge=1)
    compute_ms: float | None = Field(default=None, ge=0, le=MOST)
    buckets: int = Field(default=4, ge=1, le=1024)

    @field_validator("ring_every")
    @classmethod
    def _bursts(cls, every: int) -> int:
        if 1 < every < BURST:
            raise ValueError(f"expected 1 (every iteration has its ring) or {BURST} and more")
        return every
