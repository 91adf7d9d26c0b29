"""The reservation ledger in Redis or Valkey: scripts, client, Python twin, embedded server."""
