// Package output prints the results of commands: tables for people, JSON and YAML for scripts.
// Names and texts from other people can't control the terminal: control characters and invisible
// characters are replaced or escaped. It also controls the user's terminal while a program in a runner uses
// it, and restores it afterwards.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// A Format has the flags that choose the output format of a command.
type Format struct {
	Output string `short:"o" enum:"table,json,yaml" default:"table" placeholder:"FORMAT" help:"Output format: table for people; json or yaml for scripts, with the API's names. (${default})"`
	JSON   bool   `name:"json" help:"Same as --output json."`
}

// format returns table, json or yaml. --json takes precedence over --output.
func (f Format) format() string {
	if f.JSON {
		return "json"
	}
	return f.Output
}

// A Table is the output for people.
type Table struct {
	Head []string
	Rows [][]string
}

// List is Print for a list. For an empty list in table format, it prints nothing to out and the
// text empty to errs.
func (f Format) List(out, errs io.Writer, answered any, t Table, empty string) error {
	if len(t.Rows) > 0 || f.format() != "table" {
		return f.Print(out, answered, t)
	}
	_, err := fmt.Fprintln(errs, "rockpool: "+Plain(empty))
	return err
}

// Print writes answered as JSON or YAML, or else the table, as the flags choose.
func (f Format) Print(out io.Writer, answered any, t Table) error {
	if f.format() == "table" {
		return t.write(out)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(answered); err != nil {
		return err
	}
	escaped, controls := Escape(text.Bytes())
	if f.format() == "yaml" && !controls { // JSON is valid YAML, and can escape control characters
		// Through JSON, so that both have the same names, in the same order.
		converted, err := yaml.JSONToYAML(escaped)
		if err != nil {
			return err
		}
		_, err = out.Write(converted)
		return err
	}
	_, err := out.Write(escaped)
	return err
}

// JSONLine writes answered as one line of JSON.
func JSONLine(out io.Writer, answered any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answered); err != nil {
		return err
	}
	escaped, _ := Escape(text.Bytes())
	_, err := out.Write(escaped)
	return err
}

// write prints the table in aligned columns. Control characters in cells are replaced.
func (t Table) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = Plain(cell)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Plain replaces control characters and misleading invisible characters with dots. Names and
// commands come from other people: they must neither control the terminal nor read differently from
// what they are.
func Plain(cell string) string {
	shown := []rune(cell)
	for i, r := range shown {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || misleads(at(shown, i-1), r, at(shown, i+1)) {
			shown[i] = '·'
		}
	}
	return string(shown)
}

func at(runes []rune, i int) rune {
	if i < 0 || i >= len(runes) {
		return 0
	}
	return runes[i]
}

// Lines is Plain for messages of several lines.
func Lines(text string) string {
	all := strings.Split(text, "\n")
	for i, line := range all {
		all[i] = Plain(line)
	}
	return strings.Join(all, "\n")
}

// Escape escapes characters that JSON allows unescaped, but that control a terminal or mislead a
// reader. controls reports whether the text has control characters, escaped or not. Line ends and
// tabs don't count.
func Escape(text []byte) (escaped []byte, controls bool) {
	for i := 0; i < len(text); i++ {
		size := 1
		switch c := text[i]; {
		case c == 0x7f:
			escaped, controls = append(escaped, `\u007f`...), true
			continue
		case c == 0xc2 && i+1 < len(text) && text[i+1] < 0xa0: // U+0080 to U+009F
			escaped, controls = fmt.Appendf(escaped, `\u00%02x`, text[i+1]), true
			i++
			continue
		case c >= utf8.RuneSelf:
			var r rune
			r, size = utf8.DecodeRune(text[i:])
			before, _ := utf8.DecodeLastRune(text[:i])
			after, _ := utf8.DecodeRune(text[i+size:])
			if misleads(before, r, after) {
				for _, unit := range utf16.Encode([]rune{r}) {
					escaped = fmt.Appendf(escaped, `\u%04x`, unit)
				}
				i, controls = i+size-1, true
				continue
			}
		case c == '\\' && i+1 < len(text):
			size = 2
			controls = controls || isControl(text[i+1:])
		}
		escaped = append(escaped, text[i:i+size]...)
		i += size - 1
	}
	return escaped, controls
}

// isControl reports whether the text after a backslash encodes a control character other than a
// line end or a tab.
func isControl(escape []byte) bool {
	if strings.ContainsRune("rbf", rune(escape[0])) {
		return true
	}
	if escape[0] != 'u' || len(escape) < 5 {
		return false
	}
	r, err := strconv.ParseUint(string(escape[1:5]), 16, 16)
	return err == nil && r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0)
}

// Ago formats a time relative to now, for example "5 min ago"; "-" for none.
func Ago(moment *time.Time) string {
	if moment == nil || moment.IsZero() {
		return "-"
	}
	d := time.Since(*moment)
	suffix := " ago"
	if d < 0 {
		d, suffix = -d, " from now"
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s%s", int(d.Seconds()), suffix)
	case d < time.Hour:
		return fmt.Sprintf("%d min%s", int(d.Minutes()), suffix)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h%s", int(d.Hours()), suffix)
	default:
		return fmt.Sprintf("%d days%s", int(d.Hours()/24), suffix)
	}
}

// A WriteError means that the program's output can't be written on this side, for example because the
// reader of a pipe is gone.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return "the output can't be written: " + e.Err.Error() }

func (e *WriteError) Unwrap() error { return e.Err }
