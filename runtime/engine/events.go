package engine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
)

// MaxEvent is how many bytes of one stream an event holds at most.
const MaxEvent = 32 << 10

// An EventKind says what an Event is.
type EventKind int

// The kinds, in the order in which they come; EventOutput, EventLost and
// EventResized come any number of times.
const (
	EventStarted EventKind = iota + 1
	EventOutput
	EventLost
	EventResized
	EventFinished
)

// An Event is one event of an execution. Cursor marks the position after it.
type Event struct {
	Kind      EventKind
	Cursor    string
	At        time.Time
	Stream    runtime.Stream       // EventOutput
	Data      []byte               // EventOutput: the exact bytes
	Bytes     int64                // EventLost: how many
	Cause     runtime.LossCause    // EventLost: why
	Reason    string               // EventLost: Cause in words
	Size      runtime.TerminalSize // EventResized: what the terminal has from here on
	Execution runtime.Execution    // EventFinished
}

// Text is Data as valid UTF-8, with U+FFFD for each byte that isn't part of any.
func (e Event) Text() string {
	if utf8.Valid(e.Data) {
		return string(e.Data)
	}
	var b strings.Builder
	for _, r := range string(e.Data) {
		b.WriteRune(r)
	}
	return b.String()
}

// Events reads one execution's events: EventStarted (unless it never
// started), its output, and EventFinished, each once and in order. It is for
// one goroutine. Close it.
type Events struct {
	engine   *Engine
	id       runtime.ExecutionID
	session  *session.Session  // nil: it had ended when the reader was opened
	ended    runtime.Execution // without a session
	reader   *output.Reader
	at       cursor
	until    int64 // an event ends at this position in the log; 0: wherever
	resizes  bool  // EventResized is wanted
	finished bool
}

// Events opens an execution's events after a cursor; "" is the beginning. What
// a cursor is after doesn't come again, but for the end, which is a state.
func (e *Engine) Events(ctx context.Context, id runtime.ExecutionID, after string) (*Events, error) {
	at, err := parseCursor(id, after)
	if err != nil {
		return nil, err
	}
	r := &Events{engine: e, id: id, at: at}
	if r.session, r.ended, err = e.find(ctx, id); err != nil {
		return nil, err
	}
	r.reader, err = e.openLog(r.session, id, at.position)
	if errors.Is(err, output.ErrBeyond) { // the log was cut: its end is where this reader was
		r.at.position = 0
		if r.reader, err = e.openLog(r.session, id, 0); err == nil {
			r.at.position = r.reader.SkipToEnd()
		}
	}
	switch {
	case errors.Is(err, output.ErrPosition):
		return nil, badCursor()
	case errors.Is(err, fs.ErrNotExist): // collected just now
		return nil, store.NotFound(id)
	default:
		return r, err
	}
}

// WithResizes has EventResized come too: the sizes that a terminal got, the first
// one included. It is called before the first event.
func (r *Events) WithResizes() { r.resizes = true }

// Ended returns a channel that is closed once the execution has ended: then
// Next doesn't wait any more.
func (r *Events) Ended() <-chan struct{} {
	if r.session != nil {
		return r.session.Done()
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Until makes sure that one event ends at this cursor of an earlier one, if it
// is still to come: then what comes after is the same for both readers. A later
// call replaces an earlier one.
func (r *Events) Until(cursor string) {
	r.until = 0
	if at, err := parseCursor(r.id, cursor); err == nil {
		r.until = at.position
	}
}

// Close lets go of the log.
func (r *Events) Close() error { return r.reader.Close() }

// Next waits for the next event; after EventFinished comes io.EOF.
func (r *Events) Next(ctx context.Context) (Event, error) {
	if !r.at.started && r.session != nil {
		select {
		case <-r.session.Started():
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
	for {
		event, err := r.TryNext()
		if !errors.Is(err, output.ErrWait) {
			return event, err
		}
		if err := r.reader.Wait(ctx); err != nil {
			return Event{}, err
		}
		if ctx.Err() != nil {
			return Event{}, context.Cause(ctx)
		}
	}
}

// ErrWait says that there is no event yet.
var ErrWait = output.ErrWait

// TryNext is Next without waiting: ErrWait means that there is no event yet.
func (r *Events) TryNext() (Event, error) {
	if r.finished {
		return Event{}, io.EOF
	}
	x := r.execution()
	if !r.at.started {
		if x.State == runtime.ExecutionPending {
			return Event{}, output.ErrWait
		}
		r.at.started = true
		if !x.Marks.StartedAt.IsZero() { // else it ended without having started
			return Event{Kind: EventStarted, Cursor: r.at.encode(r.id), At: x.Marks.StartedAt}, nil
		}
	}
	record, err := r.reader.Peek()
	for err == nil && record.Resized() && !r.resizes {
		if _, err = r.reader.TryNext(); err == nil {
			record, err = r.reader.Peek()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && x.State == runtime.ExecutionFinished, errors.Is(err, io.EOF):
		return r.end()
	case err != nil:
		return Event{}, err
	case record.Offset > r.at.offset:
		return r.lost(record.Offset, false), nil
	case record.Resized():
		return r.resized(x.Marks.StartedAt)
	}
	return r.output(x.Marks.StartedAt)
}

func (r *Events) execution() runtime.Execution {
	if r.session != nil {
		return r.session.Execution()
	}
	return r.ended
}

// resized returns the event of the next record, which is a size.
func (r *Events) resized(began time.Time) (Event, error) {
	record, err := r.reader.TryNext()
	if err != nil {
		return Event{}, err
	}
	r.at.position = r.reader.Position()
	return Event{Kind: EventResized, Cursor: r.at.encode(r.id), At: began.Add(record.Since), Size: record.Size}, nil
}

// output returns the event of the next record, and of those of the same stream
// that are there already: a flood makes few large events, and nothing waits.
func (r *Events) output(began time.Time) (Event, error) {
	event := Event{Kind: EventOutput}
	for {
		record, err := r.reader.Peek()
		if err != nil {
			break // the first is there; another's error comes again with the next call
		}
		if event.Data != nil && (record.Stream != event.Stream || record.Offset != r.at.offset || len(event.Data)+len(record.Data) > MaxEvent) {
			break
		}
		if event.Data == nil {
			event.Stream, event.At = record.Stream, began.Add(record.Since)
		}
		event.Data = append(event.Data, record.Data...)
		r.at.offset = record.Offset + int64(len(record.Data))
		if _, err := r.reader.TryNext(); err != nil {
			return Event{}, err
		}
		if r.reader.Position() == r.until {
			break
		}
	}
	r.at.position = r.reader.Position()
	event.Cursor = r.at.encode(r.id)
	return event, nil
}

// lost returns the event of output that isn't in the log, up to where its cause is
// the same; behind says that the log has nothing after it.
func (r *Events) lost(until int64, behind bool) Event {
	cause, same := r.cause(behind)
	until = min(until, same)
	event := Event{Kind: EventLost, At: time.Now(), Bytes: until - r.at.offset, Cause: cause, Reason: reasons[cause]}
	r.at.offset = until
	event.Cursor = r.at.encode(r.id)
	return event
}

func (r *Events) end() (Event, error) {
	x := r.execution()
	if r.at.offset < x.Usage.OutputBytes {
		return r.lost(x.Usage.OutputBytes, true), nil
	}
	r.finished = true
	return Event{Kind: EventFinished, Cursor: r.at.encode(r.id), At: x.Marks.FinishedAt, Execution: x}, nil
}

// Bounds of a page of output.
const (
	maxPageBytes = 16 << 20
	maxChunks    = 4096
	chunkBytes   = 100 // what a chunk costs beside its data: a program can make them small
)

// Output returns what is there now after a cursor: events of output, and of its
// loss, of about maxBytes in all, at most 4096 of them, but at least one if there is any; the cursor after them; and
// whether the execution has ended and this is its last output. It calls charge with the data of each event of output: an
// error ends the page, and is returned only where that is empty.
func (e *Engine) Output(ctx context.Context, id runtime.ExecutionID, after string, maxBytes int, charge func(data []byte) error) (chunks []Event, next string, end bool, err error) {
	if err := runtime.Between("maxBytes", int64(maxBytes), 1, maxPageBytes, "bytes"); err != nil {
		return nil, "", false, err
	}
	r, err := e.Events(ctx, id, after)
	if err != nil {
		return nil, "", false, err
	}
	defer r.Close()
	next = r.at.encode(id)
	for size := 0; ; {
		event, err := r.TryNext()
		switch {
		case errors.Is(err, output.ErrWait):
			return chunks, next, false, nil
		case err != nil:
			return nil, "", false, err
		case event.Kind == EventFinished:
			return chunks, event.Cursor, true, nil
		case event.Kind == EventOutput:
			if size += len(event.Data) + chunkBytes; len(chunks) == maxChunks || size > maxBytes+chunkBytes && len(chunks) > 0 {
				return chunks, next, false, nil
			}
			if err := charge(event.Data); err != nil {
				if len(chunks) > 0 {
					return chunks, next, false, nil
				}
				return nil, "", false, err
			}
			chunks = append(chunks, event)
		case event.Kind == EventLost:
			if len(chunks) == maxChunks {
				return chunks, next, false, nil
			}
			chunks = append(chunks, event)
		}
		next = event.Cursor
	}
}
