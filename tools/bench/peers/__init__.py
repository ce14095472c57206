"""One module per library: how its calls are made. They are imported where they run."""
