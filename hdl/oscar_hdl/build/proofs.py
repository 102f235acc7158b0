"""Which blocks' streams are proven, for how many clocks, and what they pass on."""

from __future__ import annotations

from oscar_hdl.build.formal import Proof

PROOFS: dict[str, Proof] = {}
