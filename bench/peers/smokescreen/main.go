// smokescreen (Go): smokescreen, with its own flags
// Its log cannot be switched off by a flag, so its logger is replaced here; the program is
// otherwise its own. Without an ACL every caller is allowed: it identifies clients by their
// certificates, and knows no Basic credentials.
package main

import (
	"io"
	"log"

	"github.com/sirupsen/logrus"
	"github.com/stripe/smokescreen/cmd"
	"github.com/stripe/smokescreen/pkg/smokescreen"
)

func main() {
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	silent.SetLevel(logrus.PanicLevel)
	config, err := cmd.NewConfiguration(nil, silent)
	if err != nil {
		log.Fatal(err)
	}
	// Of its transport: 256 kept connections to the origin, as in goproxy's row
	config.TransportMaxIdleConns = 256
	config.TransportMaxIdleConnsPerHost = 256
	smokescreen.StartWithConfig(config, nil)
}
