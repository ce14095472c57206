"""Shared memory between rank 0 and a replica of the same host.

A second way for the messages of the reliable stream; ZeroMQ carries everything else.
"""
