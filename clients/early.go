package clients

import (
	"io"
	"net/http"
	"time"
)

// DefaultEarly is how long an answer may take before its head is sent. Proxies usually end a
// request of which nothing arrives for 60 s.
const DefaultEarly = 15 * time.Second

// Early calls work, which makes the answer to a request. If that takes longer than every, Early
// sends the head of an answer with status 200, and then one space per interval. White space may
// precede JSON. It returns whether it has sent the head: then only the body is left to write.
//
// Head sets the header before it is sent. Work must not use w, nor read the request's body.
func Early(w http.ResponseWriter, every time.Duration, head func(http.Header), work func()) (sent bool) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
			case <-end:
				return
			}
			if !sent {
				head(w.Header())
				w.WriteHeader(http.StatusOK)
				sent = true
			}
			if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
				return // the client has left, which work learns from its context
			}
		}
	}()
	defer func() {
		close(end)
		<-ended
	}()
	work()
	return
}
