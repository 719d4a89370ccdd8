"""Who owns what: the control ledger, its transaction helper and its stores."""
