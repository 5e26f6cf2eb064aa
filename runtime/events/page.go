package events

import (
	"errors"
	"io"
)

// A Page is a part of the output that exists after a cursor, and of its loss. It has about a number
// of bytes, at most maxChunks events, and at least one if any exists. Its reader takes one event after
// the other, so it can stop at any of them. Use it in one goroutine, and Close it.
type Page struct {
	reader *Reader
	most   int // bytes
	bytes  int
	events int
	cursor string
	over   bool
	end    bool
}

// The size of a page counts chunkBytes for each event in addition to its data, since programs may
// print tiny pieces.
const (
	maxChunks  = 4096
	chunkBytes = 100
)

// NewPage returns the page after the position of r, which it owns.
func NewPage(r *Reader, maxBytes int) *Page {
	return &Page{reader: r, most: maxBytes, cursor: r.At()}
}

// Next returns the next event of the page, which is output or its loss. io.EOF is the end of the page.
func (p *Page) Next() (Event, error) {
	if p.over {
		return Event{}, io.EOF
	}
	event, err := p.reader.TryNext()
	switch {
	case errors.Is(err, ErrWait):
		p.over = true
	case err != nil:
		return Event{}, err
	case event.Kind == Finished:
		p.over, p.end, p.cursor = true, true, event.Cursor
	case event.Kind == Output:
		p.bytes += len(event.Data) + chunkBytes
		p.over = p.events == maxChunks || p.bytes > p.most+chunkBytes && p.events > 0
	case event.Kind == Lost:
		p.over = p.events == maxChunks
	default: // Started: it isn't output
		p.cursor = event.Cursor
		return p.Next()
	}
	if p.over {
		return Event{}, io.EOF
	}
	p.events++
	p.cursor = event.Cursor
	return event, nil
}

// Rest returns the further events of the page, the cursor after them, and End. It calls take for each
// output. If take returns an error, the page ends before this output; for the first event Rest returns
// the error.
func (p *Page) Rest(take func(output Event) error) (rest []Event, next string, end bool, err error) {
	for {
		next = p.cursor
		event, err := p.Next()
		if errors.Is(err, io.EOF) {
			return rest, p.cursor, p.end, nil
		}
		if err == nil && event.Kind == Output {
			if err = take(event); err != nil && len(rest) > 0 {
				return rest, next, false, nil
			}
		}
		if err != nil {
			return nil, "", false, err
		}
		rest = append(rest, event)
	}
}

// Cursor returns the cursor after what Next has returned.
func (p *Page) Cursor() string { return p.cursor }

// End reports that the execution has ended, and that Next has returned its last output.
func (p *Page) End() bool { return p.end }

// Close closes the page's reader.
func (p *Page) Close() error { return p.reader.Close() }
