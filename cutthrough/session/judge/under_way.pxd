"""Requests and tunnels under way are judged by a newer snapshot."""

from cutthrough.session.model.client cimport Client

# The request becomes a tunnel: would a reload have cut it meanwhile?
cdef bint is_cut_meanwhile(Client c) except -1
# A tunnel that another process let in now belongs to the newest snapshot. False: that
# snapshot cuts it. `asked_for`: the rule that let it in has `cut` set.
cdef bint readmit(Client c, bint asked_for) except -1
