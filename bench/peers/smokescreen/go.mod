module bench/smokescreen

go 1.25.0

require (
	github.com/sirupsen/logrus v1.9.0
	github.com/stripe/smokescreen v0.1.0
)
