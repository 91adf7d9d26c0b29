"""What the processes tell people and monitors: metrics, logs, health, and the story of a unit."""
