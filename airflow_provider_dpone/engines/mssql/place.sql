-- The incarnation of the current database: what changes when it is created anew, restored to an older point, or copied.
-- Names, addresses and versions are no part of it.
SELECT d.database_id,
       CONVERT(char(36), rs.database_guid) AS database_guid,
       CONVERT(char(36), rs.recovery_fork_guid) AS recovery_fork_guid,
       CONVERT(varchar(33), d.create_date, 126) AS created,
       CONVERT(char(36), d.service_broker_guid) AS broker,
       d.state, d.is_read_only, d.source_database_id, d.containment, CONVERT(char(36), d.replica_id) AS replica
FROM sys.databases AS d
JOIN sys.database_recovery_status AS rs ON rs.database_id = d.database_id
WHERE d.database_id = DB_ID();
