"""Settings of the processes; each field says its unit and the reason of its default."""
