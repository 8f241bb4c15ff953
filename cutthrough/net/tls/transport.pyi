from cutthrough.net.tls.failures import alert_of_denied as alert_of_denied
from cutthrough.net.tls.failures import why_denied as why_denied
from cutthrough.net.tls.failures import why_refused as why_refused
from cutthrough.net.tls.wire import put as put
from cutthrough.net.tls.wire import remove as remove
from cutthrough.net.tls.wire import set_most_handshakes as set_most_handshakes
from cutthrough.net.tls.wire import set_own_records as set_own_records
from cutthrough.net.tls.wire import stats as stats
from cutthrough.net.tls.wire import why_silent as why_silent

def set_kernel(on: bool) -> None: ...
