"""The `stretto` command: it reads flags, starts the three roles and speaks to people; it decides
nothing."""
