"""A listener that reads PROXY headers, and users by their addresses."""

ANN, BOB, V6 = "203.0.113.9", "198.51.100.7", "2001:db8::9"
# The floor is on, as for every exposed listener, and the tests' origins are on loopback
OPEN = ("--address-floor", "off", "--connect-ports", "any")
FLAGS = ("--proxy-protocol", "127.0.0.1:0", "--proxy-protocol-from", "127.0.0.0/8",
         *OPEN)
