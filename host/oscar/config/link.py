"""The section `link`: the link of the time model, and which codec is in front of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from oscar.config.base import LEAST_RATE, MOST, Section
from oscar.timeline.link import LinkModel, Pipeline
from oscar.timeline.nic import NicFile, host_nic, load_nic


class LinkSection(Section):
    """Link and codec of the time model.

    codec: whose clock the model uses. ideal: the codec keeps up with the line and is `codec_latency_us` deep.
    rtl: the NIC's RTL (nic_file; null: the part that comes with the package for this rate). host: the
    compiled coder on a core of this machine. driver: with codec rtl, what a board's driver does counts, as
    the NIC's file has it. codec_gvalues, codec_latency_us, encode_latency_us: replace the
    figures of the ideal codec.
    """

    gbps: float = Field(default=100.0, ge=LEAST_RATE, le=MOST)
    latency_us: float = Field(default=2.0, ge=0, le=MOST)
    codec: Literal["ideal", "rtl", "host"] = "ideal"
    nic_file: str | None = None
    driver: bool = True
    codec_gvalues: float | None = Field(default=None, ge=LEAST_RATE, le=MOST)
    codec_latency_us: float = Field(default=0.5, ge=0, le=MOST)
    encode_latency_us: float | None = Field(default=None, ge=0, le=MOST)
    _kept: NicFile | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, data: Any) -> Any:
        if isinstance(data, dict) and "nic_mhz" in data:
            raise ValueError(
                "nic_mhz was removed: a NIC's clock rate is in its file; copy that of the package, "
                "change mhz there, and name it as nic_file"
            )
        return data

    @model_validator(mode="after")
    def _one_clock(self) -> LinkSection:
        if self.codec != "ideal" and self.assumed:
            raise ValueError(
                f"codec: {self.codec} takes rate and latency as measured: leave {', '.join(self.assumed)} "
                "out, or set codec: ideal"
            )
        if self.codec == "rtl" or self.nic_file is not None:
            load_nic(self.nic_file, self.gbps)
        return self

    @property
    def assumed(self) -> list[str]:
        """Names of the keys that replace what an ideal codec has."""
        keys = ("codec_gvalues", "codec_latency_us", "encode_latency_us")
        return [key for key in keys if getattr(self, key) != type(self).model_fields[key].default]

    @property
    def driven(self) -> bool:
        """Whether what a board's driver does takes time."""
        return self.driver and self.codec == "rtl"

    @property
    def clock(self) -> str:
        """The name of the clock: ideal, rtl, host, or assumed where a key replaces the ideal one."""
        return "assumed" if self.assumed else self.codec

    def clock_text(self) -> str:
        """Return the clock as every table, figure and report of modelled times names it."""
        if self.codec != "ideal":
            return f"codec: {self.codec} ({self.nic().text(driven=self.driven)})"
        rate = "line rate" if self.codec_gvalues is None else f"{self.codec_gvalues:g} G values/s"
        deep = f"{self.codec_latency_us:g} us deep"
        if self.encode_latency_us is not None:
            deep += f", {self.encode_latency_us:g} us encoding"
        return f"codec: {self.clock} ({rate}, {deep})"

    def nic(self) -> NicFile:
        """Return the NIC, or the host's coder, whose clock is used; an ideal codec is compared with it."""
        if self._kept is not None:
            return self._kept
        return host_nic() if self.codec == "host" else load_nic(self.nic_file, self.gbps)

    @classmethod
    def as_kept(cls, section: dict[str, Any], nic: NicFile) -> LinkSection:
        """Return the link that results hold, with the clock of `nic`, whatever files say today."""
        link = cls.model_validate(section | {"nic_file": None})
        link._kept = nic
        return link

    def rtl(self) -> LinkSection:
        """Return the same link with the clock of the RTL."""
        kept = self.model_dump(include={"gbps", "latency_us", "nic_file", "driver"})
        return LinkSection(codec="rtl", **kept)

    def model(self, *, block_log2: int = 0) -> LinkModel:
        """Return the link for the time model; block_log2: of frames that a NIC codes, 0: as its file says."""
        coder = None if self.codec == "ideal" else self.nic().model()
        if block_log2 and isinstance(coder, Pipeline):
            coder = replace(coder, block=1 << block_log2)
        return LinkModel.of(
            gbps=self.gbps,
            latency_us=self.latency_us,
            codec_gvalues=self.codec_gvalues,
            codec_latency_us=self.codec_latency_us,
            encode_latency_us=self.encode_latency_us,
            coder=coder,
            driver=self.nic().driver_model() if self.driven else None,
        )
