"""What drives the machines: sockets, threads and the clock.

``engine``
    One step function, the loop thread that repeats it, and the futures.
``hub``, ``spoke``, ``alone``
    The engines of rank 0, of every other replica, and of one replica alone.
``joining``
    From settings to an engine whose group is complete.
``exits``
    The ends of a program, and forks.
"""
