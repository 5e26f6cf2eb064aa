package bare

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"
)

// A Counter is a proxy for Nomad that counts requests of lists.
type Counter struct {
	URL    string
	lists  atomic.Int64
	server *http.Server
	ended  chan struct{}
}

// Count puts a Counter on loopback in front of Nomad, until the Counter is closed.
func (n *Nomad) Count() (*Counter, error) {
	address, err := url.Parse(n.settings.Address)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is net/http's own
	if err := api.ConfigureTLS(&http.Client{Transport: transport}, n.settings.TLSConfig); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Counter{URL: "http://" + listener.Addr().String(), ended: make(chan struct{})}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(address) },
		Transport:     transport,
		FlushInterval: -1,                                                                                             // so that events arrive immediately
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // the client has left
	}
	c.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, list := range []string{"/v1/jobs", "/v1/allocations", "/v1/evaluations", "/v1/nodes", "/v1/vars"} {
			if r.Method == http.MethodGet && strings.TrimSuffix(r.URL.Path, "/") == list {
				c.lists.Add(1)
			}
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() {
		defer close(c.ended)
		_ = c.server.Serve(listener) // until Close
		transport.CloseIdleConnections()
	}()
	return c, nil
}

// Lists returns the number of lists requested until now.
func (c *Counter) Lists() int64 { return c.lists.Load() }

// Close ends the proxy and the connections through it.
func (c *Counter) Close() error {
	err := c.server.Close()
	<-c.ended
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}
