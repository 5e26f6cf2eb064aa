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
	position int64              // in the log
	offset   int64              // output bytes before it
	begun    runtime.Characters // of the output before it: the text after it begins with their rest
}

// tagSize is how many bytes of a cursor identify its execution.
const tagSize = 4

func tag(id runtime.ExecutionID) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:tagSize]
}

// String returns the cursor's text for clients. Only cursors with started set are handed out.
func (c Cursor) String() string {
	raw := append(make([]byte, 0, tagSize+2*binary.MaxVarintLen64), tag(c.id)...)
	raw = binary.AppendUvarint(raw, uint64(c.position))
	raw = binary.AppendUvarint(raw, uint64(c.offset))
	if c.begun != (runtime.Characters{}) {
		raw = append(append(append(raw, byte(len(c.begun[0]))), c.begun[0]...), c.begun[1]...)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// At returns the cursor at a position in the log, after Started. offset is the number of output
// bytes before it, and begun holds the unfinished characters of these.
func At(id runtime.ExecutionID, position, offset int64, begun runtime.Characters) Cursor {
	return Cursor{id: id, started: true, position: position, offset: offset, begun: begun}
}

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
	if m <= 0 || int64(position) < 0 || int64(offset) < 0 {
		return Cursor{}, badCursor()
	}
	var begun runtime.Characters
	if rest := raw[n+m:]; len(rest) > 0 {
		first := int(rest[0])
		if rest = rest[1:]; first > len(rest) {
			return Cursor{}, badCursor()
		}
		begun = runtime.Characters{string(rest[:first]), string(rest[first:])}
		for _, bytes := range begun {
			if runtime.Unfinished([]byte(bytes)) != len(bytes) {
				return Cursor{}, badCursor()
			}
		}
		if len(rest) == 0 {
			return Cursor{}, badCursor()
		}
	}
	return At(id, int64(position), int64(offset), begun), nil
}

func badCursor() error {
	return runtime.Invalid("after", "must be the cursor of an event or a page of this execution")
}
