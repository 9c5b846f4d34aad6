"""`mixit-titan doctor`: what this machine is, and whether it will do.

Each file reads one kind of facts (`read_*`) and judges them (`check_*`, which touch nothing but the
facts).
"""
