module bench/goproxy

go 1.21

require github.com/elazarl/goproxy v1.7.2
