module bench/gost

go 1.24.0

require github.com/go-gost/x v0.8.1
