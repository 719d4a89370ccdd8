-- What makes this transaction this one: another transaction with the same lock gives another answer.
SELECT CONCAT(CURRENT_TRANSACTION_ID(), N'/', @@TRANCOUNT, N'/', XACT_STATE(), N'/',
  APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction')) AS identity_of_transaction;
