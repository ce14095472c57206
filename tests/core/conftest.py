from collections.abc import Iterator

import pytest
from core.link_bench import CHUNK, WINDOW
from hypothesis import HealthCheck, settings

from zcoll.protocol import chunks, link

# The machine may be busy: how long an example takes says nothing.
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")


@pytest.fixture(scope="module")
def _small_limits() -> Iterator[None]:
    """Limits of a link so small that short values are chunked and windowed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_SIZE", CHUNK)
        patch.setattr(link, "WINDOW", WINDOW)
        patch.setattr(link, "ACK_BYTES", 20)
        patch.setattr("zcoll.payload.INLINE_LIMIT", 8)
        yield
