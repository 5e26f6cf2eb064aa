package mcp

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
)

// How often a message is in memory, measured: see TestMemoryOfCallsIsCounted.
const (
	bodyCopies   = 2 // beside the body: the SDK's and the decoded arguments
	answerCopies = 2 // of an answer's JSON, until it is written
)

// decoded returns how many bytes of memory a message takes beside its body. The SDK decodes some of it into maps. It
// returns the errors of peers.Values.
func decoded(body []byte) (int64, error) {
	values, err := peers.Values(body)
	return max(bodyCopies*(int64(len(body))-peers.FreeBody), 0) + max(int64(values)*peers.ValueBytes-peers.FreeBody, 0), err
}

// A request is served. Its calls take memory of its hold. It ends after its calls, and gives the memory back.
type request struct {
	calls sync.WaitGroup

	mu    sync.Mutex // guards the rest
	hold  *peers.Hold
	taken int64 // bytes, with those that are free
}

// grow takes n bytes of memory for a call. QUOTA_EXCEEDED where there are too few.
func (r *request) grow(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.hold.Grow(max(r.taken+n-peers.FreeBody, 0) - max(r.taken-peers.FreeBody, 0))
	if err == nil {
		r.taken += n
	}
	return err
}

// give gives n bytes of a call's memory back.
func (r *request) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold.Shrink(max(r.taken-peers.FreeBody, 0) - max(r.taken-n-peers.FreeBody, 0))
	r.taken -= n
}

// read reads so many bytes, which take memory.
func (r *request) read(from io.Reader, size int64) ([]byte, error) {
	if err := r.grow(size); err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(from, data); err != nil {
		r.give(size)
		return nil, err
	}
	return data, nil
}

// turn does what takes several times size bytes for a moment.
func (r *request) turn(ctx context.Context, size int, do func() error) error {
	return r.hold.Turn(ctx, size, do)
}

// result returns what a tool answers with, and takes the memory that it needs until it is written.
func (c *call) result(out any, said answer) (*sdk.CallToolResult, error) {
	structured, err := json.Marshal(out) // it escapes <, > and &, as the SDK does
	if err != nil {
		return nil, err
	}
	size := len(structured) + quoted(said.text)
	content := []sdk.Content{&sdk.TextContent{Text: said.text}}
	for _, image := range said.images {
		size += (len(image.Data) + 2) / 3 * 4
		content = append(content, image)
	}
	if err := c.request.grow(answerCopies * int64(size)); err != nil {
		if said.otherwise != "" { // nobody should run the program again
			err = runtime.Errorf(runtime.CodeLimitExceeded, "there is no memory for the answer (--body-memory): %s", said.otherwise)
		}
		return nil, err
	}
	return &sdk.CallToolResult{StructuredContent: json.RawMessage(structured), Content: content}, nil
}

// quoted returns how many bytes a text, which is UTF-8, has in JSON at most.
func quoted(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c == '<', c == '>', c == '&':
			size += len(`\u0000`) - 1
		case c == '"', c == '\\':
			size++
		case c == 0xe2: // perhaps U+2028, which is escaped
			size += len(`\u2028`) - 3
		}
	}
	return size
}
