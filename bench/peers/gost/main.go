// gost (Go): gost FILE
// The engine of gost 3.2.6 with its own configuration, and only the parts that the file
// names, so that the hundred others are not built.
package main

import (
	"log"
	"os"
	"sync"

	"github.com/go-gost/x/config"
	"github.com/go-gost/x/config/loader"
	"github.com/go-gost/x/config/parsing/parser"
	_ "github.com/go-gost/x/handler/http"
	_ "github.com/go-gost/x/listener/tcp"
	"github.com/go-gost/x/registry"
)

func main() {
	parser.Init(parser.Args{CfgFile: os.Args[1]})
	read, err := parser.Parse()
	if err != nil {
		log.Fatal(err)
	}
	config.Set(read)
	if err := loader.Load(read); err != nil {
		log.Fatal(err)
	}
	var serving sync.WaitGroup
	for _, service := range registry.ServiceRegistry().GetAll() {
		serving.Add(1)
		go func() {
			defer serving.Done()
			log.Print(service.Serve())
		}()
	}
	serving.Wait()
}
