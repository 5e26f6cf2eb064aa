package events

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/rockpool/rockpool/runtime"
)

// A Cursor is a position in an execution's events: before all of them, or after Started and some of the
// output. The end is a state, not a position.
type Cursor struct {
	id       runtime.ExecutionID
	started  bool
	position int64 // in the log
	offset   int64 // output bytes before it
}

// tagSize is how many bytes of a cursor identify its execution.
const tagSize = 4

// tag returns the bytes that identify an execution in its cursors.
func tag(id runtime.ExecutionID) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:tagSize]
}

// encode returns the cursor's text for clients. Only cursors with started set are handed out.
func (c Cursor) encode() string {
	raw := append(make([]byte, 0, tagSize+2*binary.MaxVarintLen64), tag(c.id)...)
	raw = binary.AppendUvarint(raw, uint64(c.position))
	raw = binary.AppendUvarint(raw, uint64(c.offset))
	return base64.RawURLEncoding.EncodeToString(raw)
}

// At returns the cursor at a position in the log, after Started. offset is the number of output
// bytes before it.
func At(id runtime.ExecutionID, position, offset int64) Cursor {
	return Cursor{id: id, started: true, position: position, offset: offset}
}

// String returns the cursor's text for clients.
func (c Cursor) String() string { return c.encode() }

// Parse returns the cursor with this text; "" is before all events. INVALID_INPUT names the field
// after; it is returned for a cursor of another execution, too.
func Parse(id runtime.ExecutionID, text string) (Cursor, error) {
	if text == "" {
		return Cursor{id: id}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < tagSize || string(raw[:tagSize]) != string(tag(id)) {
		return Cursor{}, badCursor()
	}
	raw = raw[tagSize:]
	position, n := binary.Uvarint(raw)
	if n <= 0 {
		return Cursor{}, badCursor()
	}
	offset, m := binary.Uvarint(raw[n:])
	if m <= 0 || n+m != len(raw) || int64(position) < 0 || int64(offset) < 0 {
		return Cursor{}, badCursor()
	}
	return Cursor{id: id, started: true, position: int64(position), offset: int64(offset)}, nil
}

// badCursor returns INVALID_INPUT for the field after.
func badCursor() error {
	return runtime.Invalid("after", "must be the cursor of an event or a page of this execution")
}
