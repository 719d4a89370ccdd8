-- What a provisioner of authority may do: read everything, add trust policies, grants and their originals. Nothing else.
GRANT USAGE ON SCHEMA dpone TO {provisioner};
GRANT SELECT ON ALL TABLES IN SCHEMA dpone TO {provisioner};
GRANT INSERT ON dpone.evidence, dpone.authority_log TO {provisioner};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dpone TO {provisioner}
