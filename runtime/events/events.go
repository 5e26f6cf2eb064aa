// Package events reads the events of one execution: its start, its output, and its end. Readers get
// each event once, in order, and can resume after any cursor. A [RunnerFeed] reports the changes of runners.
package events

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/session"
)

// MaxBytes bounds the data of one event, in bytes.
const MaxBytes = 32 << 10

// A Kind is the kind of an Event.
type Kind int

// The kinds, in order of arrival. Output, Lost and Resized may come any number of times.
const (
	Started Kind = iota + 1
	Output
	Lost
	Resized
	Finished
)

// An Event is one event of an execution. Cursor marks the position after it.
type Event struct {
	Kind      Kind
	Cursor    string
	At        time.Time
	Stream    runtime.Stream       // Output
	Data      []byte               // Output: the exact bytes; empty if only an unfinished character is flushed
	Begun     string               // Output: the first bytes of a character that Data continues
	Cut       int                  // Output: how many of the last bytes of Begun and Data begin a character
	Bytes     int64                // Lost: how many
	Cause     runtime.LossCause    // Lost: why
	Reason    string               // Lost: Cause in words
	Size      runtime.TerminalSize // Resized: of the terminal from here on
	Execution runtime.Execution    // Finished
}

// Whole returns the bytes of all characters that this event completes.
func (e Event) Whole() []byte {
	if e.Begun == "" {
		return e.Data[:len(e.Data)-e.Cut]
	}
	all := append([]byte(e.Begun), e.Data...)
	return all[:len(all)-e.Cut]
}

// Text returns Whole as valid UTF-8, with U+FFFD for each invalid byte. So the texts of a stream's events
// are the text of all its output, wherever it was divided.
func (e Event) Text() string { return runtime.Text(e.Whole()) }

// A Reader reads one execution's events: Started (unless it never started), its output, and
// Finished, each once and in order. It is for one goroutine. Close it.
type Reader struct {
	source   Source
	log      *output.Reader
	at       Cursor // position of the next event
	until    int64  // position in the log at which an event must end; 0 means any
	resizes  bool   // return Resized events
	lends    bool   // Data is valid until the next call only
	finished bool
}

// A Source gives access to an execution's events.
type Source struct {
	Session   *session.Session                                                // nil means the execution has ended
	Execution runtime.Execution                                               // if there is no session
	Log       output.Location                                                 // of its log
	Known     func(ctx context.Context, id runtime.ExecutionID) (bool, error) // whether the execution is stored
}

// open opens the session's log or, if there is no session, the stored one.
func (s Source) open(position int64) (*output.Reader, error) {
	if s.Session != nil {
		return s.Session.Log().Reader(position)
	}
	return output.OpenReader(s.Log, position)
}

// Open returns a reader of an execution's events after a cursor of the same execution. Events
// before the cursor aren't repeated, except the end, which is a state. It returns INVALID_INPUT if
// the log has no such position, and [fs.ErrNotExist] if retention has just removed the log.
func Open(after Cursor, source Source) (*Reader, error) {
	r := &Reader{source: source, at: after}
	damaged := func(l runtime.OutputLoss) bool { return l.Cause == runtime.LossDamaged }
	if slices.ContainsFunc(r.execution().Losses, damaged) {
		r.at.position = 0 // the cursor may be of a damaged, replaced log: read from the beginning and skip by offset
	}
	var err error
	r.log, err = source.open(r.at.position)
	if errors.Is(err, output.ErrBeyond) { // the log was truncated
		r.at.position = 0
		r.log, err = source.open(0)
	}
	if errors.Is(err, output.ErrPosition) {
		return nil, badCursor()
	}
	return r, err
}

// WithResizes makes the reader return Resized events too, for all sizes of the terminal including
// the first. Call it before the first event.
func (r *Reader) WithResizes() { r.resizes = true }

// Lending saves a copy of large output: an event's Data is then valid only until the next call.
// Call it before the first event.
func (r *Reader) Lending() { r.lends = true }

// Ended returns a channel that is closed once the execution has ended. Next doesn't block afterwards.
func (r *Reader) Ended() <-chan struct{} {
	if r.source.Session != nil {
		return r.source.Session.Done()
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Until makes one event end at the cursor of an earlier event, if the reader hasn't passed it yet.
// So everything after it is the same for both readers. A later call replaces an earlier one.
func (r *Reader) Until(cursor string) {
	r.until = 0
	if at, err := Parse(r.at.id, cursor); err == nil {
		r.until = at.position
	}
}

// At returns the cursor after the last event. Before the first event it returns a cursor after
// Started, so a reader opened there doesn't get Started.
func (r *Reader) At() string { return r.at.String() }

// Close closes the log.
func (r *Reader) Close() error { return r.log.Close() }

// Next waits for the next event. After Finished it returns io.EOF.
func (r *Reader) Next(ctx context.Context) (Event, error) {
	if !r.at.started && r.source.Session != nil {
		select {
		case <-r.source.Session.Started():
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
	for {
		event, err := r.TryNext()
		if !errors.Is(err, output.ErrWait) {
			return event, err
		}
		if err := r.log.Wait(ctx); err != nil {
			return Event{}, err
		}
		if ctx.Err() != nil {
			return Event{}, context.Cause(ctx)
		}
	}
}

// ErrWait says that there is no event yet.
var ErrWait = output.ErrWait

// TryNext is like Next but returns ErrWait instead of waiting.
func (r *Reader) TryNext() (Event, error) {
	if r.finished {
		return Event{}, io.EOF
	}
	x := r.execution()
	if !r.at.started {
		if x.State == runtime.ExecutionPending {
			return Event{}, output.ErrWait
		}
		r.at.started = true
		if !x.Timestamps.StartedAt.IsZero() { // otherwise it ended without starting
			return Event{Kind: Started, Cursor: r.at.String(), At: x.Timestamps.StartedAt}, nil
		}
	}
	record, err := r.log.Peek()
	// Skip sizes that weren't requested, and output that the cursor already covers.
	for err == nil && (record.Resized() && !r.resizes || record.Offset < r.at.offset) {
		if _, err = r.log.TryNext(); err == nil {
			record, err = r.log.Peek()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && x.State == runtime.ExecutionFinished, errors.Is(err, io.EOF):
		return r.end()
	case err != nil:
		return Event{}, err
	case record.Offset > r.at.offset:
		if event, ok := r.unfinished(time.Now()); ok {
			return event, nil
		}
		return r.lost(record.Offset, false), nil
	case record.Resized():
		return r.resized(x.Timestamps.StartedAt)
	}
	return r.output(x.Timestamps.StartedAt)
}

func (r *Reader) execution() runtime.Execution {
	if r.source.Session != nil {
		return r.source.Session.Execution()
	}
	return r.source.Execution
}

func (r *Reader) resized(began time.Time) (Event, error) {
	record, err := r.log.TryNext()
	if err != nil {
		return Event{}, err
	}
	r.at.position = r.log.Position()
	return Event{Kind: Resized, Cursor: r.at.String(), At: began.Add(record.Since), Size: record.Size}, nil
}

// output returns the event of the next record, joined with following records of the same stream that are
// available already. So much output makes few large events, and nothing waits.
func (r *Reader) output(began time.Time) (Event, error) {
	event := Event{Kind: Output}
	for {
		record, err := r.log.Peek()
		if err != nil {
			break // the first record exists; the error returns with the next call
		}
		if event.Data != nil && (record.Stream != event.Stream || record.Offset != r.at.offset || len(event.Data)+len(record.Data) > MaxBytes) {
			break
		}
		if event.Data == nil {
			event.Stream, event.At = record.Stream, began.Add(record.Since)
		}
		whole := r.lends && event.Data == nil && len(record.Data) > MaxBytes/2 // little could be joined to it
		if whole {
			event.Data = record.Data
		} else {
			event.Data = append(event.Data, record.Data...)
		}
		r.at.offset = record.Offset + int64(len(record.Data))
		if _, err := r.log.TryNext(); err != nil {
			return Event{}, err
		}
		if whole || r.log.Position() == r.until {
			break
		}
	}
	r.at.position = r.log.Position()
	event.Begun, event.Cut = r.at.begun.Add(event.Stream, event.Data)
	event.Cursor = r.at.String()
	return event, nil
}

// unfinished returns the event of a character that gets no rest, because output is missing or has ended.
func (r *Reader) unfinished(at time.Time) (event Event, ok bool) {
	for i, begun := range r.at.begun {
		if begun != "" {
			r.at.begun[i] = ""
			return Event{Kind: Output, Cursor: r.at.String(), At: at, Stream: runtime.Stream(i + 1), Data: []byte{}, Begun: begun}, true
		}
	}
	return Event{}, false
}

// lost returns the event of output that is missing from the log, up to where its cause changes.
// behind says that the log has nothing after it.
func (r *Reader) lost(until int64, behind bool) Event {
	cause, same := r.cause(behind)
	until = min(until, same)
	event := Event{Kind: Lost, At: time.Now(), Bytes: until - r.at.offset, Cause: cause, Reason: reasons[cause]}
	r.at.offset = until
	event.Cursor = r.at.String()
	return event
}

// end returns the event after all stored output: the loss of the rest if output is missing, then
// that the execution has finished.
func (r *Reader) end() (Event, error) {
	x := r.execution()
	if event, ok := r.unfinished(x.Timestamps.FinishedAt); ok {
		return event, nil
	}
	if r.at.offset < x.Usage.OutputBytes {
		return r.lost(x.Usage.OutputBytes, true), nil
	}
	r.finished = true
	return Event{Kind: Finished, Cursor: r.at.String(), At: x.Timestamps.FinishedAt, Execution: x}, nil
}

var reasons = map[runtime.LossCause]string{
	runtime.LossStorageFull: "the server's disk, or the space that --keep-bytes leaves for output, was full when it was printed",
	runtime.LossUnwritable:  "the server could not write it when it was printed: the disk failed or was read-only, or no file descriptors were left",
	runtime.LossRetention:   "retention removed it (see --keep-executions and --keep-bytes)",
	runtime.LossDeleted:     "something other than the server deleted its file from the data directory",
	runtime.LossDamaged:     "its file in the data directory is damaged: it was changed, or a power cut truncated it",
	runtime.LossUnknown:     "an earlier server did not store it, and the reason is unknown",
}

// cause returns why the output at the reader's position is missing from the log, and up to which
// offset. behind says that the log has nothing after it.
func (r *Reader) cause(behind bool) (cause runtime.LossCause, until int64) {
	x := r.execution()
	if behind && x.State == runtime.ExecutionFinished {
		if cause := r.damage(x); cause != "" {
			return cause, math.MaxInt64
		}
	}
	cause, until = x.LossAt(r.at.offset)
	return cmp.Or(cause, runtime.LossUnknown), until
}

// damage returns the damage to a log after its execution had ended; "" means none.
func (r *Reader) damage(x runtime.Execution) runtime.LossCause {
	had := int64(1) // older servers didn't store the size; it wasn't empty, since output is missing
	if x.LogBytes != nil {
		had = *x.LogBytes
	}
	size, err := r.source.Log.Size()
	switch {
	case had == 0:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return r.missing()
	case err != nil:
		return runtime.LossUnknown
	case x.LogBytes != nil && size < had, r.log.Torn() && (x.LogBytes == nil || r.log.Position() < had):
		return runtime.LossDamaged
	}
	return ""
}

// missing returns why a log's file is missing. Retention deletes the execution before the file.
func (r *Reader) missing() runtime.LossCause {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	switch there, err := r.source.Known(ctx, r.at.id); {
	case err != nil:
		return runtime.LossUnknown
	case there:
		return runtime.LossDeleted
	default:
		return runtime.LossRetention
	}
}
