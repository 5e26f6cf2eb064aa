package download

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/executions"
)

// The screen of a recording if the program had no terminal.
const (
	plainColumns = 120
	plainRows    = 32
)

// recording responds with an asciicast, version 2: what was printed, each piece with its time
// (https://docs.asciinema.org/manual/asciicast/v2/). Its length isn't known in advance, so it
// supports no ranges. It ends where ended returns an error.
func (h Handler) recording(w http.ResponseWriter, r *http.Request, content *executions.Output, ended func() error) {
	header := w.Header()
	header.Set("Content-Type", "application/x-asciicast")
	header.Set("Content-Disposition", disposition("attachment", string(content.Execution.ID)+".cast"))
	if lost := content.Lost(); lost > 0 {
		header.Set(LostHeader, strconv.FormatInt(lost, 10))
	}
	if r.Method == http.MethodHead {
		return
	}
	sendCast(w, content.Execution, endableSource{content, ended})
}

func sendCast(w io.Writer, x runtime.Execution, content recordSource) {
	out := bufio.NewWriter(w)
	if err := writeCast(out, x, content); err != nil {
		panic(http.ErrAbortHandler) // a part of a recording would look like the whole
	}
	_ = out.Flush() // a client that left needs no answer
}

// A recordSource is the source of a recording: an executions.Output.
type recordSource interface {
	Next() (record executions.Record, lost int64, err error)
	Lost() int64
}

// An endableSource is a recordSource that fails when its reader must stop.
type endableSource struct {
	recordSource
	ended func() error // the reason why reading must stop, for example a revoked token
}

func (u endableSource) Next() (executions.Record, int64, error) {
	if err := u.ended(); err != nil {
		return executions.Record{}, 0, err
	}
	return u.recordSource.Next()
}

// writeCast writes an asciicast: what was printed, the sizes of the terminal in between, and a
// marker where bytes are missing. The output of a program without a terminal gets the carriage
// returns that a terminal would have added.
func writeCast(w io.Writer, x runtime.Execution, content recordSource) error {
	size := runtime.TerminalSize{Columns: plainColumns, Rows: plainRows}
	if x.Terminal != nil {
		size = *x.Terminal
	}
	encoder := json.NewEncoder(w) // invalid UTF-8 becomes U+FFFD
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Version   int    `json:"version"`
		Width     int    `json:"width"`
		Height    int    `json:"height"`
		Timestamp int64  `json:"timestamp,omitempty"`
		Command   string `json:"command,omitempty"`
	}{2, size.Columns, size.Rows, max(0, x.Timestamps.StartedAt.Unix()), strings.Join(x.Command, " ")})
	c := cast{encoder: encoder}
	if x.Terminal == nil {
		c.returns = strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n")
	}
	missing := content.Lost()
	for err == nil {
		record, lost, next := content.Next()
		if errors.Is(next, io.EOF) {
			return c.lost(missing)
		}
		if next != nil {
			return next
		}
		// A gap precedes its record, so the marker has the time of the record.
		c.at = record.Since
		if lost > 0 {
			missing -= lost
			err = c.lost(lost)
		}
		switch {
		case err != nil:
		case !record.Resized():
			err = c.output(c.begun.Text(record.Stream, record.Data))
		case record.Size != size:
			size = record.Size
			err = c.event("r", fmt.Sprintf("%dx%d", size.Columns, size.Rows))
		}
	}
	return err
}

// A cast writes the events of a recording.
type cast struct {
	encoder *json.Encoder
	returns *strings.Replacer // nil if the program had a terminal
	begun   runtime.Characters
	at      time.Duration
}

// output writes an event of output; none if text is empty.
func (c *cast) output(text string) error {
	if text == "" {
		return nil
	}
	if c.returns != nil {
		text = c.returns.Replace(text)
	}
	return c.event("o", text)
}

// lost ends characters whose rest is lost. It adds the marker if bytes are missing.
func (c *cast) lost(bytes int64) error {
	err := errors.Join(c.output(runtime.Text([]byte(c.begun[0]))), c.output(runtime.Text([]byte(c.begun[1]))))
	c.begun = runtime.Characters{}
	if err == nil && bytes > 0 {
		err = c.event("m", fmt.Sprintf("bytes missing here: %d", bytes))
	}
	return err
}

// event writes one event, with the time since the start.
func (c *cast) event(kind, data string) error {
	return c.encoder.Encode([]any{c.at.Seconds(), kind, data})
}
