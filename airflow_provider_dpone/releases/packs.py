"""Compact packs: what one workload of a release is, as a small canonical document a scheduler can carry.

A pack names its outlet logically. What a workload may write is decided by the physical admission of its deployment,
never by the name of an outlet.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from airflow_provider_dpone.contracts.canonical import Digest, Document, Text
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.errors import DeclarationInvalid

OutletBinding = Literal["logical"]


class AirflowCompactPack(Document):
    """One workload as its release pins it."""

    schema_name: Literal["dpone.compact_pack.v1"] = Field(default="dpone.compact_pack.v1")
    declaration: WorkloadDeclaration
    declaration_sha256: Digest
    outlet_binding: OutletBinding
    outlet: Text
    """``dpone://logical/<workload>``: an asset's name, no authority."""


class AirflowCompactPackBuilder:
    """Builds packs; the same declaration gives the same bytes."""

    def build(
        self, declaration: WorkloadDeclaration, *, outlet_binding: OutletBinding = "logical"
    ) -> AirflowCompactPack:
        """The pack of one workload.

        :param outlet_binding: only ``logical``: an outlet never gives physical authority.
        """
        if outlet_binding != "logical":
            raise DeclarationInvalid(f"outlet binding {outlet_binding!r} would give authority; only 'logical' exists")
        return AirflowCompactPack(
            declaration=declaration,
            declaration_sha256=declaration.digest(),
            outlet_binding=outlet_binding,
            outlet=f"dpone://logical/{declaration.workload_id}",
        )
