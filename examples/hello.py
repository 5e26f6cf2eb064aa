"""Greets each name on standard input."""
import sys
import time

for name in sys.stdin:
    print(f"Hello, {name.strip()}!", flush=True)
    time.sleep(0.2)
