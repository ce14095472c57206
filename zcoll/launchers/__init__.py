"""What the environment says of this replica's place in its job."""
