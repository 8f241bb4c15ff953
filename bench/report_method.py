"""How the figures of a report came about, in words."""

from __future__ import annotations

METHOD = """<p>Each scenario is run through each proxy in turn (A B C, C B A …), every
run with a fresh process, on one machine. The bars are medians; the thin line is from
the least to the most of the repetitions. A ratio is the median of the ratios of two
runs of one repetition, not that of two medians. Figures of one chart may be compared
with each other, not with those of another run or machine.</p><ul>
<li><b>direct</b> is no proxy at all, <b>relay</b> a blind C loop that copies bytes and
reads nothing, <b>relay-splice</b> the same by splice(2), and <b>lean</b> a loop of one
read and one write, about the least that a relay can cost: what the machine can do, and
what any user-space proxy could.</li>
<li>A run counts only if the client saw no error, every status and length was right, and
the origin logged as many requests as the client counted. Else it is <b>void</b> and has
no bar.</li>
<li>CPU is that of the proxy's whole process tree, its children included: it survives a
noisy neighbour better than a rate.</li>
<li><b>unstable</b>: the coefficient of variation of the repetitions is over 0.20. Not a
result.</li>
<li>Every forward proxy checks Basic credentials on each request or tunnel (LittleProxy
once a connection, smokescreen never), and keeps no log and no cache; the blind ones
cannot. Only
cutthrough-full and the variants named so write a log. nginx and HAProxy have one fixed
origin. Their configuration files are below.</li>
<li>cutthrough and the relays are compiled for this machine, the others are as their
packages have them. A run begins a hundred requests after its process: little for what
compiles itself as it runs (java, node).</li>
</ul>"""
