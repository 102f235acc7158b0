"""Several configurations over the same gradients, in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from oscar.config import Config
from oscar.errors import PeerError
from oscar.studies.parallel import Job, run_jobs


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_a_peer_error_of_a_worker_keeps_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    error = PeerError("died", rank=1, peer=2, step=3, chunk=4)

    def fail(job: Job, tick: Callable[[], None]) -> Any:
        raise error

    monkeypatch.setattr(Job, "run", fail)
    with pytest.raises(PeerError) as caught:
        run_jobs([Job(Config(), [])] * 2, workers=2)
    assert (str(caught.value), vars(caught.value)) == (str(error), vars(error))
