"""The simulator: replicas, supervisor, store and sinks in one process, on a virtual clock, with every fault of a seed.

What decides in production decides here too: the supervisor, the proposer of epochs, pacing, marks, progress reports,
the choice of what to start from, the judging of disagreements. What takes time or touches a disk is a model.
"""
