"""Tasks in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from oscar.errors import PeerError
from oscar_studies.parallel import run_tasks


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_a_peer_error_of_a_worker_keeps_its_fields() -> None:
    error = PeerError("died", rank=1, peer=2, step=3, chunk=4)

    def fail(tick: Callable[[], None]) -> Any:
        raise error

    with pytest.raises(PeerError) as caught:
        run_tasks([fail] * 2, stage="failing", total=2, workers=2)
    assert (str(caught.value), vars(caught.value)) == (str(error), vars(error))
