"""The protocol: pure machines without sockets, threads or a clock.

``events``
    What the machines tell the engine to do.
``link``, ``chunks``
    One end of the connection between rank 0 and a replica: numbered messages,
    acknowledgements, replay; large payloads cut and joined.
``membership``, ``identities``, ``calls``, ``steps``, ``reports``, ``coordinator``
    Rank 0's side: who is in the group, what its calls have come to, who is
    missing in them, and the machine that ties all of it to messages.
``replica``, ``admission``, ``pending``
    Every replica's side, rank 0's own included; its way into the group, its calls.
``status``
    What rank 0 tells those who ask from outside.
"""
