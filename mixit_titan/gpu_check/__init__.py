"""`make test-gpu`: everything that only a GPU can show, in one command and one report.

Whatever computes runs in a process of its own: an error of CUDA spoils the process that it comes
up in. This one starts them, with a time limit each, and judges what they leave. One file per
section of the report; scale.py is all that is different in a rehearsal.
"""
