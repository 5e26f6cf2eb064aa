package mcp

import (
	"encoding/json"
	"io"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// How many copies of a message are in memory, as measured by TestMemoryOfCallsIsCounted.
const (
	bodyCopies   = 2 // in addition to the body: the SDK's and the decoded arguments
	answerCopies = 2 // of an answer's JSON, until it is written
)

// decoded returns how many bytes of memory a message takes in addition to its body. The SDK decodes
// parts of it into maps. Errors are those of clients.Values.
func decoded(body []byte) (int64, error) {
	values, err := clients.Values(body)
	return max(bodyCopies*(int64(len(body))-clients.FreeBody), 0) + max(int64(values)*clients.ValueBytes-clients.FreeBody, 0), err
}

// A request is being served. Its calls take memory from its hold. When all calls have ended, the
// request ends and frees the memory. Its methods are safe for concurrent use.
type request struct {
	calls sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	hold  *clients.Reservation
	taken int64 // bytes, including the free ones
}

// grow takes n bytes of memory for a call. It returns QUOTA_EXCEEDED if too few are left.
func (r *request) grow(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.hold.Grow(max(r.taken+n-clients.FreeBody, 0) - max(r.taken-clients.FreeBody, 0))
	if err == nil {
		r.taken += n
	}
	return err
}

// give frees n bytes of a call's memory.
func (r *request) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold.Shrink(max(r.taken-clients.FreeBody, 0) - max(r.taken-n-clients.FreeBody, 0))
	r.taken -= n
}

// read reads size bytes into memory of the request.
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

// result returns the result of a tool, and takes the memory that it needs until it is written.
func (c *call) result(out any, reply answer) (*sdk.CallToolResult, error) {
	structured, err := json.Marshal(out) // it escapes <, > and &, as the SDK does
	if err != nil {
		return nil, err
	}
	size := len(structured) + quoted(reply.text)
	content := []sdk.Content{&sdk.TextContent{Text: reply.text}}
	for _, image := range reply.images {
		size += (len(image.Data) + 2) / 3 * 4
		content = append(content, image)
	}
	if err := c.request.grow(answerCopies * int64(size)); err != nil {
		if reply.otherwise != "" { // the agent shouldn't run the program again
			err = runtime.Errorf(runtime.CodeLimitExceeded, "there isn't enough memory for the answer (--body-memory): %s", reply.otherwise)
		}
		return nil, err
	}
	return &sdk.CallToolResult{StructuredContent: json.RawMessage(structured), Content: content}, nil
}

// quoted returns the maximum number of bytes that a UTF-8 text has as a JSON string.
func quoted(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c == '<', c == '>', c == '&':
			size += len(`\u0000`) - 1
		case c == '"', c == '\\':
			size++
		case c == 0xe2: // may begin U+2028, which is escaped
			size += len(`\u2028`) - 3
		}
	}
	return size
}
