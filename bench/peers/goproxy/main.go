// goproxy (Go): goproxy LISTEN:PORT USER PASSWORD
// One process with GOMAXPROCS from the environment; Basic credentials compared on every
// request; connections to the origin are kept as net/http keeps them, up to 256.
package main

import (
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/elazarl/goproxy"
)

func main() {
	wanted := "Basic " + base64.StdEncoding.EncodeToString([]byte(os.Args[2]+":"+os.Args[3]))
	proxy := goproxy.NewProxyHttpServer()
	proxy.Logger = log.New(io.Discard, "", 0)
	proxy.Tr = &http.Transport{
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
	refused := func(r *http.Request) *http.Response {
		response := goproxy.NewResponse(r, "text/plain", http.StatusProxyAuthRequired, "no")
		response.Header.Set("Proxy-Authenticate", "Basic realm=bench")
		return response
	}
	known := func(r *http.Request) bool {
		given := r.Header.Get("Proxy-Authorization")
		r.Header.Del("Proxy-Authorization")
		return given == wanted
	}
	proxy.OnRequest().DoFunc(
		func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
			if known(r) {
				return r, nil
			}
			return r, refused(r)
		})
	proxy.OnRequest().HandleConnectFunc(
		func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
			if known(ctx.Req) {
				return goproxy.OkConnect, host
			}
			ctx.Resp = refused(ctx.Req)
			return goproxy.RejectConnect, host
		})
	log.Fatal(http.ListenAndServe(os.Args[1], proxy))
}
