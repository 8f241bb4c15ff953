"""Code for a worker's sitecustomize.py: a function in place of a method."""

# `patch(name, call)`: the class calls `call(worker, method)` in place of the method, as
# soon as its module is loaded. A thread that waited for the class came too late on a
# busy machine
PATCH = """
import importlib.util, sys, threading, time

class Finder:
    def __init__(self, change):
        self.change = change

    def find_spec(self, name, path=None, target=None):
        if name != "cutthrough.worker.worker":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            self.change(module.Worker)

        spec.loader.exec_module = exec_module
        return spec

def patch(name, call):
    def change(worker):
        method = getattr(worker, name)
        setattr(worker, name, lambda self: call(self, method))

    sys.meta_path.insert(0, Finder(change))
"""
