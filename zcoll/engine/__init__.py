"""What drives the machines: sockets, threads and the clock.

``loop``
    The thread that sleeps until something happens, and does one step.
``engine``
    What the engines share: calls in, outcomes out to the futures.
``backlog``, ``questions``, ``stalls``
    How many calls may be in flight; who is missing in those that take long.
``hub``, ``spoke``, ``alone``
    The engines of rank 0, of every other replica, and of one replica alone.
``joining``, ``waiting``
    From settings to an engine whose group is complete.
``exits``
    The ends of a program, and forks.
"""
