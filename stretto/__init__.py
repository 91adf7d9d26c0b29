"""What dispatcher, shards and Binder share; imports none of the three (stretto.cli starts them)."""
