"""Sends the one EXCHANGE of an intent: one POST, under the issued publisher, with the intent's query id.

What the answer says is a note for people. Whether the tables were swapped is for an observation to say.
"""

from __future__ import annotations

from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.contracts.publication import SnapshotIntent
from airflow_provider_dpone.engines.clickhouse.quoting import table
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp
from airflow_provider_dpone.errors import AnswerLost, GateRefused, ServerRefused


def exchange_sql(intent: SnapshotIntent) -> str:
    """The statement an intent stands for."""
    at = intent.target
    return f"EXCHANGE TABLES {table(at.database, at.target_table)} AND {table(at.database, at.generation_table)}"


class ClickHouseExchangeExecutor:
    """Dispatches under one issued publisher; the credential is used once and forgotten."""

    def __init__(self, http: ClickHouseHttp, credential: IssuedCredential, answer_within: float | None = None) -> None:
        self._http = http
        self._answer_within = answer_within
        self._credential: IssuedCredential | None = credential

    def exchange(self, intent: SnapshotIntent) -> str:
        """Send exactly one EXCHANGE.

        :returns: a note on the answer, an unread or refusing one included; it proves nothing.
        :raises GateRefused: the credential was used before, or is not the intent's publisher; nothing was sent.
        :raises ServerUnreachable: there was no connection; nothing was sent.
        """
        credential, self._credential = self._credential, None
        if credential is None or credential.principal != intent.publisher:
            raise GateRefused("the publisher's credential was used already, or belongs to another intent")
        try:
            self._http.dispatch(
                exchange_sql(intent), credential, query_id=intent.query_id(), answer_within=self._answer_within
            ).send()
        except (ServerRefused, AnswerLost) as error:
            return f"{error.code} {error.details.get('server_code', '')}".strip()
        return "answered"
