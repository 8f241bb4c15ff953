"""Code for a worker's sitecustomize.py: a function in place of a method."""

# `patch(name, call)` waits in a thread until the class is there. Then the class calls
# `call(worker, method)` in place of the method
PATCH = """
import sys, threading, time

def patch(name, call):
    def wait():
        while True:
            module = sys.modules.get("cutthrough.worker.worker")
            worker = getattr(module, "Worker", None)
            if hasattr(worker, "leaks"):     # the last of its methods
                break
            time.sleep(0.001)                # an import has no event
        method = getattr(worker, name)
        setattr(worker, name, lambda self: call(self, method))

    threading.Thread(target=wait, daemon=True).start()
"""
