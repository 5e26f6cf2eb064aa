package mcp

import (
	"bytes"
	"context"
	"encoding/json"
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

// A request is one that is served. Its calls take memory of its hold until it ends, which is after they have.
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

// turn does what takes several times size bytes for a moment.
func (r *request) turn(ctx context.Context, size int, do func() error) error {
	return r.hold.Turn(ctx, size, do)
}

// result returns what a tool answers with, and takes the memory that it needs until it is written.
func (c *call) result(out any, said answer) (*sdk.CallToolResult, error) {
	var structured bytes.Buffer
	encoder := json.NewEncoder(&structured)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(out); err != nil {
		return nil, err
	}
	size := structured.Len() + quoted(said.text)
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
	return &sdk.CallToolResult{StructuredContent: json.RawMessage(structured.Bytes()), Content: content}, nil
}

// quoted returns how many bytes a text, which is UTF-8, has in JSON at most.
func quoted(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ':
			size += len(`\u0000`) - 1
		case c == '"', c == '\\':
			size++
		case c == 0xe2: // perhaps U+2028, which is escaped
			size += len(`\u2028`) - 3
		}
	}
	return size
}
