"""A short soak: a dozen snapshots at once over four guards, with kills. The campaign runs it longer and wider."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.soak import Soak
from tests.snapshot_world import SnapshotWorld


@pytest.mark.timeout(400)
def test_many_snapshots_at_once_with_kills_end_published_once_each(world: SnapshotWorld, tmp_path: Path) -> None:
    soak = Soak(world, tmp_path / "soak", tables=4, parallel=8)
    soak.prepare()
    found = soak.run(12)
    assert found["violations"] == []
    assert found["kills"] > 0
    assert found["published"] >= found["runs"] > 0
    readers = found["readers"]
    assert (readers["errors"], readers["mixed"], readers["empty"]) == (0, 0, 0)
    assert readers["polls"] > 0
