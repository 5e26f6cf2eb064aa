package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type execLogs struct {
	command.Flags
	ID         string    `arg:"" name:"execution" complete:"execution" help:"Id of the execution."`
	Lines      lineRange `placeholder:"120-140" help:"Only the lines with these numbers: 120, 120-140 or 120-."`
	Last       int       `placeholder:"N" help:"Only the last N lines, 1 to 1000."`
	Search     string    `placeholder:"TEXT" help:"Only lines that contain this text; upper and lower case are the same."`
	MatchCase  bool      `help:"Make --search distinguish upper and lower case."`
	Stream     string    `placeholder:"STREAM" enum:",stdout,stderr" default:"" help:"Only lines of this stream: stdout or stderr."`
	Numbers    bool      `short:"n" help:"Begin each line with its number."`
	Timestamps bool      `short:"t" help:"Begin each line with the time at which it was printed."`
	JSON       bool      `name:"json" help:"Print one JSON object per line, with the API's names."`
	Raw        bool      `help:"Print control characters as they are also on a terminal: the program's output then controls it."`
}

// A lineRange is a range of line numbers, both ends included; the zero value is all lines.
type lineRange struct{ from, to int64 }

// UnmarshalText reads 120, 120-140 or 120-.
func (r *lineRange) UnmarshalText(text []byte) error {
	first, last, isRange := strings.Cut(string(text), "-")
	from, err := strconv.ParseInt(first, 10, 64)
	to := from
	if err == nil && isRange {
		if to = math.MaxInt64; last != "" {
			to, err = strconv.ParseInt(last, 10, 64)
		}
	}
	if err != nil || from < 1 || to < from {
		return fmt.Errorf("%q isn't a range of lines: give line numbers from 1 on, such as 120, 120-140 or 120-", text)
	}
	*r = lineRange{from, to}
	return nil
}

func (c *execLogs) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	if c.Last != 0 && (c.Search != "" || c.Lines != lineRange{}) {
		return runtime.Invalid("last", "--last can't be used with --lines or --search")
	}
	var stream *client.OutputStream
	if c.Stream != "" {
		stream = new(client.OutputStream(strings.ToUpper(c.Stream)))
	}
	from, to := &c.Lines.from, cmp.Or(c.Lines.to, math.MaxInt64)
	if *from == 0 {
		from = nil
	}
	var last *bool
	most := *command.PageSize
	if c.Last != 0 {
		last, most = new(true), c.Last
	}
	printed := false
	guarded := output.Guarded(s.Out, c.Raw)
	defer guarded.Close()
	for {
		out, err := client.GetLines(ctx, server, c.ID, from, last, most, stream, command.Optional(c.Search), &c.MatchCase)
		if err != nil {
			return err
		}
		page := out.Execution.Lines
		if c.Last != 0 && from == nil && !page.Counted {
			continue // the server still counts lines: each request continues the count
		}
		for _, line := range page.Lines {
			if line.Number > to {
				break
			}
			printed = true
			if err := c.print(guarded, line); err != nil {
				return err
			}
		}
		if !page.More || page.Next > to {
			if printed {
				return nil
			}
			return c.none(ctx, s, server)
		}
		from, last = &page.Next, nil
	}
}

// none reports that no line was printed.
func (c *execLogs) none(ctx context.Context, s command.Streams, server client.Sender) error {
	out, err := client.GetEnding(ctx, server, c.ID, 0)
	if err != nil {
		return err
	}
	yet := ""
	if out.Execution.State != runtime.ExecutionFinished {
		yet = " yet"
	}
	_, err = fmt.Fprintf(s.Err, "rockpool: no lines match, or the program has printed nothing%s\n", yet)
	return err
}

// print prints one line, as JSON or as text. A loss of output becomes a line of its own.
func (c *execLogs) print(out io.Writer, line client.Line) error {
	if c.JSON {
		encoded, err := json.Marshal(line)
		if err != nil {
			return err
		}
		escaped, _ := output.Escape(encoded)
		_, err = out.Write(append(escaped, '\n'))
		return err
	}
	if _, ok := out.(*output.Guard); ok {
		line.Text = line.Text[strings.LastIndexByte(strings.TrimRight(line.Text, "\r"), '\r')+1:]
	}
	var b strings.Builder
	if c.Numbers {
		fmt.Fprintf(&b, "%7d  ", line.Number)
	}
	if c.Timestamps {
		b.WriteString(line.At.Local().Format("2006-01-02T15:04:05.000Z07:00  "))
	}
	switch {
	case line.LostBytes > 0:
		fmt.Fprintf(&b, "[%d bytes of output are missing here: %s]", line.LostBytes, lossCause(line))
	case line.Truncated:
		b.WriteString(line.Text + " [the line is longer: rockpool exec follow prints all of it]")
	default:
		b.WriteString(line.Text)
	}
	_, err := io.WriteString(out, b.String()+"\n")
	return err
}

// lossCause says why output is missing before a line.
func lossCause(line client.Line) string {
	if line.LostCause == nil {
		return string(runtime.LossUnknown)
	}
	return string(*line.LostCause)
}
