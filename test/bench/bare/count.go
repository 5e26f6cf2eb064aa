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

// A Counter stands before Nomad, and counts the lists that are asked for through
// it.
type Counter struct {
	URL    string
	lists  atomic.Int64
	server *http.Server
	ended  chan struct{}
}

// Count has Nomad reached through a Counter, on loopback, until its Close.
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
		FlushInterval: -1,                                                                                             // events
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // who asked went away
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

// Lists is how many were asked for until now.
func (c *Counter) Lists() int64 { return c.lists.Load() }

// Close ends it, with the connections through it.
func (c *Counter) Close() error {
	err := c.server.Close()
	<-c.ended
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}
