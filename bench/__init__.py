"""The measuring harness: what a request, a tunnel and a MiB cost, beside yardsticks.

`python -m bench run` starts an origin, a proxy and a load generator for each
run, interleaves the proxies, checks the client's count against the origin's, and
prints `perf_result` and `perf_summary` lines. Only loopback (or namespaces of its
own), only free ports, nothing pinned: on a small machine the load generator, the
origin and the proxy share the cores, which is why CPU time of the proxy stands
beside every rate.
"""
