"""The guarded EXCHANGE: at most once per intent, settled by observation."""
