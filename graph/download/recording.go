package download

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

// What a recording's screen is like where the program was on no terminal.
const (
	plainColumns = 120
	plainRows    = 32
)

// recording answers with an asciicast, version 2: what was printed, each piece
// with its time (https://docs.asciinema.org/manual/asciicast/v2/). How long it
// will be isn't known before, so there are no ranges of it.
func (h Handler) recording(w http.ResponseWriter, r *http.Request, content *engine.Output) {
	header := w.Header()
	header.Set("Content-Type", "application/x-asciicast")
	header.Set("Content-Disposition", disposition("attachment", string(content.Execution.ID)+".cast"))
	if lost := content.Lost(); lost > 0 {
		header.Set(LostHeader, strconv.FormatInt(lost, 10))
	}
	if r.Method == http.MethodHead {
		return
	}
	out := bufio.NewWriter(w)
	if err := writeCast(out, content.Execution, content); err != nil {
		panic(http.ErrAbortHandler) // half of it would look like the whole
	}
	_ = out.Flush() // a client that left needs no answer
}

// writeCast writes an asciicast. What a program printed on no terminal gets the
// carriage returns that a terminal would have made.
func writeCast(w io.Writer, x runtime.Execution, content *engine.Output) error {
	columns, rows := plainColumns, plainRows
	returns := strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n")
	if x.Terminal != nil {
		columns, rows = x.Terminal.Columns, x.Terminal.Rows
	}
	encoder := json.NewEncoder(w) // invalid UTF-8 becomes U+FFFD
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Version   int    `json:"version"`
		Width     int    `json:"width"`
		Height    int    `json:"height"`
		Timestamp int64  `json:"timestamp,omitempty"`
		Command   string `json:"command,omitempty"`
	}{2, columns, rows, max(0, x.Marks.StartedAt.Unix()), strings.Join(x.Command, " ")})
	var at time.Duration
	begun := characters{}
	event := func(data []byte) error {
		if len(data) == 0 {
			return nil
		}
		text := string(data)
		if x.Terminal == nil {
			text = returns.Replace(text)
		}
		return encoder.Encode([]any{at.Seconds(), "o", text})
	}
	for err == nil {
		record, next := content.Next()
		if errors.Is(next, io.EOF) {
			return errors.Join(event(begun[runtime.Stdout]), event(begun[runtime.Stderr]))
		}
		if next != nil {
			return next
		}
		at = record.Since
		err = event(begun.whole(record.Stream, record.Data))
	}
	return err
}

// characters are the beginnings of those whose rest hasn't come yet, by stream:
// a program can print a character in pieces, each of which is kept as it came.
type characters map[runtime.Stream][]byte

// whole returns what came on a stream, from its first whole character to its
// last.
func (c characters) whole(stream runtime.Stream, data []byte) []byte {
	if begun := c[stream]; len(begun) > 0 {
		data = append(begun, data...)
	}
	end := len(data)
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if utf8.RuneStart(data[len(data)-n]) {
			if !utf8.FullRune(data[len(data)-n:]) {
				end -= n
			}
			break
		}
	}
	c[stream] = slices.Clone(data[end:])
	return data[:end]
}
