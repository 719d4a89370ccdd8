"""What one-time logins have in common on every SQL server: issuing, closing and their evidence, policy findings."""
