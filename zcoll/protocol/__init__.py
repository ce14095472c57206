"""The protocol: pure machines without sockets, threads or a clock.

``events``
    What the machines tell the engine to do.
``link``
    One end of the connection between rank 0 and a replica: numbered messages,
    acknowledgements, replay, chunks.
``membership``, ``calls``, ``coordinator``
    Rank 0's side: who is in the group, what its calls have come to, and the
    machine that ties both to messages.
``replica``
    Every replica's side, rank 0's own included.
"""
