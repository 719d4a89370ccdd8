-- What a running task may do: read everything, add rows, move states. No DELETE, no TRUNCATE, no ALTER, no enrolment.
GRANT USAGE ON SCHEMA dpone TO {runtime};
GRANT SELECT ON ALL TABLES IN SCHEMA dpone TO {runtime};
GRANT INSERT ON dpone.evidence, dpone.activation, dpone.activation_guard, dpone.attempt, dpone.attempt_guard,
  dpone.principal, dpone.dispatch, dpone.publication TO {runtime};
GRANT UPDATE (state) ON dpone.activation TO {runtime};
GRANT UPDATE (epoch, owner_sha256, target_uuid, admitted) ON dpone.guard TO {runtime};
GRANT UPDATE (state, fenced, acknowledged, closed_sha256, quiescence_sha256, outcome_sha256) ON dpone.attempt TO {runtime};
GRANT UPDATE (is_open) ON dpone.attempt_guard TO {runtime};
GRANT UPDATE (state, principal_uuid, closure_sha256, quiescence_sha256) ON dpone.principal TO {runtime};
GRANT UPDATE (state, note) ON dpone.dispatch TO {runtime};
GRANT UPDATE (state, revision, record_sha256) ON dpone.publication TO {runtime};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dpone TO {runtime}
