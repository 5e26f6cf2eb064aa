package serve

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path"
	"time"

	"github.com/rockpool/rockpool/agent"
)

func (t *transfer) search(search agent.Search) error {
	if err := checkSearch(search); err != nil {
		return err
	}
	ctx, stop := untilClosed(t.conn, t.frames)
	defer stop()
	found, err := t.server.executor.Search(ctx, search)
	if err != nil {
		return err
	}
	if t.out, err = encode(agent.Response{Found: &found}); err != nil {
		return err
	}
	return t.flush()
}

// checkSearch returns ErrInvalid for a search that can't be run.
func checkSearch(search agent.Search) error {
	_, err := path.Match(search.Name, "")
	switch {
	case err != nil:
		return invalid("name", "isn't a valid pattern")
	case search.Name == "" && len(search.Text) == 0:
		return invalid("name", "a name or a text is required")
	case bytes.ContainsAny(search.Text, "\n\x00"):
		return invalid("text", "must not contain a line feed or NUL")
	case search.Most < 1 || search.Most > agent.MaxMatches:
		return invalid("most", fmt.Sprintf("must be 1 to %d", agent.MaxMatches))
	}
	return nil
}

// watch sends changes until the client closes the stream, or the executor can't watch any longer.
func (s *Server) watch(conn net.Conn, frames *agent.FrameReader, watch agent.Watch, hello []byte) error {
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		return &agent.Error{Code: agent.ErrTooMany, Message: fmt.Sprintf("this runner's files already have %d watches: end one first", maxWatches)}
	}
	ctx, stop := untilClosed(conn, frames)
	defer stop()
	t := &transfer{server: s, conn: conn, out: hello}
	err := s.executor.Watch(ctx, watch, func(changes agent.Changes) (err error) {
		if len(changes.Changes) > 0 || changes.Lost {
			t.out, err = agent.AppendJSON(t.out, agent.KindChanges, changes)
		}
		t.opened = true
		if err != nil {
			return err
		}
		return t.flush()
	})
	if err == nil || ctx.Err() != nil {
		return nil // the client closed the stream
	}
	return t.end(err)
}

// untilClosed returns a context that ends when the client closes its stream or sends an unexpected
// frame. Stop ends it and waits for the goroutine that reads frames.
func untilClosed(conn net.Conn, frames *agent.FrameReader) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer cancel()
		_, _, _ = frames.Next()
	}()
	return ctx, func() {
		cancel()
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the read in progress
		<-read
	}
}
