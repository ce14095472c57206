"""How replicas reach each other: addresses, private sockets, ZeroMQ."""
