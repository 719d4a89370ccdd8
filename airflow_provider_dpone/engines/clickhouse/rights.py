"""What an issued user may do, and under which pinned settings. Plain values; nothing is sent from here."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_dpone.contracts.states import Purpose
from airflow_provider_dpone.waiting import BEYOND


@dataclass(frozen=True)
class Right:
    """Privileges on one table."""

    privileges: tuple[str, ...]
    database: str
    table: str


def ingest_rights(database: str, generation: str) -> tuple[Right, ...]:
    """INSERT into the generation, nothing else."""
    return (Right(("INSERT",), database, generation),)


def publisher_rights(database: str, target: str, generation: str) -> tuple[Right, ...]:
    """Exactly what EXCHANGE of the two names asks for."""
    privileges = ("SELECT", "INSERT", "CREATE TABLE", "DROP TABLE")
    return (Right(privileges, database, target), Right(privileges, database, generation))


def remover_rights(database: str, name: str) -> tuple[Right, ...]:
    """DROP of one retired name."""
    return (Right(("DROP TABLE",), database, name),)


@dataclass(frozen=True)
class GatePolicy:
    """How users are issued on one server.

    :param hosts: addresses or networks issued users may come from; empty means any.
    :param lifetime: seconds after which the server refuses the password by itself (never evidence).
    :param receive_timeout: seconds after which the server drops a request whose body stands still.
    :param statement_seconds: ceiling of the publisher's and the remover's one statement.
    """

    hosts: tuple[str, ...] = ()
    lifetime: int = 2 * 24 * 3600
    receive_timeout: int = 60
    statement_seconds: int = 120

    @property
    def quiet_timeout(self) -> float:
        """Seconds closing waits for running statements: longer than the server lets a still body live."""
        return self.receive_timeout + 15.0

    @property
    def answer_within(self) -> float:
        """Seconds the answer to the publisher's or remover's one statement is waited for: longer than it may run."""
        return self.statement_seconds + float(BEYOND)

    def admits(self, shown: Sequence[str], names: str) -> bool:
        """Whether the networks and host names a server shows for a user are no more than these hosts.

        Servers show an address of this machine as the whole loopback network, or as the name ``localhost``.
        """
        allowed = [_network(host) for host in self.hosts or ("::/0",)]
        if any(network.is_loopback for network in allowed):
            allowed += [_network("127.0.0.0/8"), _network("::1")]
        elif names:
            return False
        return names in ("", "localhost") and all(_network(host) in allowed for host in shown if host)

    def settings(self, purpose: Purpose) -> dict[str, int]:
        """Settings pinned on the user, CONST: a statement that asks for another value is refused."""
        common = {"async_insert": 0, "log_queries": 1, "http_receive_timeout": self.receive_timeout}
        if purpose is Purpose.INGEST:
            return common | {
                "max_execution_time": self.lifetime,
                "insert_deduplicate": 0,
                "input_format_null_as_default": 0,
                "input_format_skip_unknown_fields": 0,
                "input_format_arrow_allow_missing_columns": 0,
            }
        common["max_execution_time"] = self.statement_seconds
        if purpose is Purpose.PUBLISHER:
            return common | {"max_table_size_to_drop": 1, "max_partition_size_to_drop": 1}
        return common


def _network(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    network = ipaddress.ip_network(host, strict=False)
    mapped = network.network_address.ipv4_mapped if network.version == 6 else None
    return network if mapped is None else ipaddress.ip_network((mapped, network.prefixlen - 96))
