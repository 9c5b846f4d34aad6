"""`make test-gpu`: everything that only a GPU can show, in one command and one report.

All computation runs in separate processes, because a CUDA error spoils the process it occurs in.
The command itself starts them, each with a time limit, and judges what they leave. There is one
file per section of the report; scale.py holds everything that differs in a rehearsal.
"""
