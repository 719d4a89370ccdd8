"""The content digest: SHA-256 of each row's bytes on the wire, summed modulo 2^256, with the number of rows.

It does not depend on the order of rows, sees duplicates and NULLs, and each target computes it itself: ClickHouse as
``count(), sum(reinterpretAsUInt256(SHA256(formatRow('RowBinary', ...))))``, PostgreSQL from its types' send functions.
Which end of a digest counts least is the target's: what its server reads as a number at the least cost.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.transfer.rowbinary import EncodedRows

_MODULUS = 2**256
ByteOrder = Literal["little", "big"]


class DigestBuilder:
    """Adds encoded rows; :meth:`content` may be asked at any time.

    :param order: how the 32 bytes of a row's digest are read as a number.
    """

    def __init__(self, order: ByteOrder = "little") -> None:
        self._big = order == "big"
        self._rows = 0
        self._sum = 0

    @property
    def rows(self) -> int:
        return self._rows

    def add(self, encoded: EncodedRows) -> None:
        """Digest every row of the piece."""
        sha256, framing = hashlib.sha256, encoded.framing
        if encoded.rows == 1:
            row = sha256()
            for part in encoded.parts:
                row.update(part[framing:])
                framing = max(0, framing - len(part))
            digests = row.digest()
        else:
            data = encoded.data
            digests = b"".join(
                [sha256(data[start + framing : end]).digest() for start, end in pairwise(encoded.offsets.tolist())]
            )
        self.add_digests(np.frombuffer(digests, np.uint8))

    def add_digests(self, digests: npt.NDArray[np.uint8]) -> None:
        """Add rows by their 32-byte digests, one after another."""
        # A digest is a number of eight 32-bit lanes; sums of lanes cannot overflow 64 bits.
        lanes = np.ascontiguousarray(digests).view(">u4" if self._big else "<u4").reshape(-1, 8)
        total = lanes.sum(axis=0, dtype=np.uint64)[:: -1 if self._big else 1]
        self._sum += sum(int(lane) << (32 * i) for i, lane in enumerate(total))
        self._rows += len(lanes)

    def content(self) -> Content:
        """Rows and sum so far."""
        return content_of(self._rows, self._sum)


def content_of(rows: int, row_sum: int) -> Content:
    """The content a server's ``count()`` and ``sum(...)`` (any representative modulo 2^256) stand for."""
    return Content(rows=rows, row_sum=format(row_sum % _MODULUS, "064x"))
