package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// A Person uses the terminal of an execution: types, and waits for output.
type Person struct {
	bed.Bed
	ID     string
	events chan client.Event
	seen   map[client.OutputStream]string // by stream: output since the last match
}

// sit starts an execution with a terminal and attaches to it.
func sit(t *testing.T, b bed.Bed, input object) *Person {
	t.Helper()
	return attach(t, b, b.Start(t, input))
}

// attach attaches to a terminal that others may use too.
func attach(t *testing.T, b bed.Bed, execution string) *Person {
	t.Helper()
	p := &Person{Bed: b, ID: execution, events: make(chan client.Event), seen: map[client.OutputStream]string{}}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	var following sync.WaitGroup
	t.Cleanup(func() { cancel(); following.Wait() })
	following.Go(func() {
		defer close(p.events)
		err := b.Follow(ctx, p.ID, nil, func(e client.Event) error {
			select {
			case p.events <- e:
			case <-ctx.Done():
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			t.Errorf("follow: %v", err)
		}
	})
	return p
}

// Types sends text as keys.
func (p *Person) Types(t *testing.T, text string) {
	t.Helper()
	if _, err := client.WriteStdin(t.Context(), p, client.WriteStdinInput{ExecutionId: p.ID, Text: &text}); err != nil {
		t.Fatalf("type %q: %v", text, err)
	}
}

// Sees waits until a stream has shown text since the last call.
func (p *Person) Sees(t *testing.T, stream client.OutputStream, text string) {
	t.Helper()
	for !strings.Contains(p.seen[stream], text) {
		e, ok := <-p.events
		if !ok {
			t.Fatalf("ended before %q on %s; saw %q", text, stream, p.seen)
		}
		p.seen[e.Stream] += string(e.Base64)
	}
	_, p.seen[stream], _ = strings.Cut(p.seen[stream], text)
}

// eventStream returns all events of a subscription.
func eventStream(t *testing.T, b bed.Bed, query string, variables object) string {
	t.Helper()
	body, err := json.Marshal(object{"query": query, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.Address+"/graphql", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
