"""`mixit-titan doctor`: describes this machine and checks whether it is fit for training.

Each module reads one kind of facts (`read_*`) and judges them (`check_*`, which depend on nothing
but the facts).
"""
