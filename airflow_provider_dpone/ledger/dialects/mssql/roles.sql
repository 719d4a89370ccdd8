-- What a running task may do: read everything, add rows, move states. No DELETE, no ALTER, no enrolment.
GRANT SELECT ON SCHEMA::[dpone] TO [/*runtime*/];
GO
-- Everybody's rights and every module are part of the layout: who sees less than its owner sees another ledger.
GRANT VIEW DEFINITION TO [/*runtime*/];
GO
GRANT VIEW SECURITY DEFINITION TO [/*runtime*/];
GO
GRANT EXECUTE ON [dpone].[acting_refusal] TO [/*runtime*/];
GO
GRANT EXECUTE ON [dpone].[digest_text] TO [/*runtime*/];
GO
GRANT EXECUTE ON [dpone].[digest_bytes] TO [/*runtime*/];
GO
GRANT EXECUTE ON [dpone].[document] TO [/*runtime*/];
GO
GRANT EXECUTE ON [dpone].[utf8] TO [/*runtime*/];
GO
GRANT EXECUTE ON [dpone].[sha256] TO [/*runtime*/];
GO
GRANT EXECUTE ON [dpone].[outcome_refusal] TO [/*runtime*/];
GO
GRANT EXECUTE ON [dpone].[ending_refusal] TO [/*runtime*/];
GO
GRANT INSERT ON [dpone].[evidence] TO [/*runtime*/];
GO
GRANT INSERT ON [dpone].[activation] TO [/*runtime*/];
GO
GRANT INSERT ON [dpone].[activation_guard] TO [/*runtime*/];
GO
GRANT INSERT ON [dpone].[attempt] TO [/*runtime*/];
GO
GRANT INSERT ON [dpone].[attempt_guard] TO [/*runtime*/];
GO
GRANT INSERT ON [dpone].[principal] TO [/*runtime*/];
GO
GRANT INSERT ON [dpone].[dispatch] TO [/*runtime*/];
GO
GRANT INSERT ON [dpone].[publication] TO [/*runtime*/];
GO
GRANT UPDATE (state) ON [dpone].[activation] TO [/*runtime*/];
GO
GRANT UPDATE (epoch, owner_sha256, target_uuid, admitted) ON [dpone].[guard] TO [/*runtime*/];
GO
GRANT UPDATE (state, fenced, acknowledged, closed_sha256, quiescence_sha256, outcome_sha256) ON [dpone].[attempt]
  TO [/*runtime*/];
GO
GRANT UPDATE (is_open) ON [dpone].[attempt_guard] TO [/*runtime*/];
GO
GRANT UPDATE (state, principal_uuid, closure_sha256, quiescence_sha256) ON [dpone].[principal] TO [/*runtime*/];
GO
GRANT UPDATE (state, note) ON [dpone].[dispatch] TO [/*runtime*/];
GO
GRANT UPDATE (state, revision, record_sha256) ON [dpone].[publication] TO [/*runtime*/];
GO
CREATE ROLE [dpone_ledger];
GO
ALTER ROLE [dpone_ledger] ADD MEMBER [/*runtime*/];
