"""The measuring harness: what a request, a tunnel and a MiB cost, beside yardsticks.

`python -m bench run` starts an origin, a proxy and a load generator for each
run, interleaves the proxies, checks the client's count against the origin's, and
prints `perf_result` and `perf_summary` lines. Only loopback (or namespaces of its
own), only free ports, nothing pinned. On a small machine the load generator, the
origin and the proxy share the cores, so the CPU time of the proxy is given with
every rate.
"""
