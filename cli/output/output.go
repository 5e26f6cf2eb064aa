// Package output prints what commands found: tables for people, JSON and YAML for
// scripts. Nothing that others named or said moves the cursor or reads as something else.
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

// A Format says how a command prints what it found.
type Format struct {
	Output string `short:"o" enum:"table,json,yaml" default:"table" placeholder:"FORMAT" help:"How to print: as a table for people, or for scripts as json or yaml with the API's names. (${default})"`
	JSON   bool   `name:"json" help:"The same as --output json."`
}

func (f Format) format() string {
	if f.JSON {
		return "json"
	}
	return f.Output
}

// A Table is what people see of a list.
type Table struct {
	Head []string
	Rows [][]string
}

// List is Print for a list. Of an empty one people see nothing on out, and on errs the line
// that says what is empty, and how that changes.
func (f Format) List(out, errs io.Writer, answered any, t Table, empty string) error {
	if len(t.Rows) > 0 || f.format() != "table" {
		return f.Print(out, answered, t)
	}
	_, err := fmt.Fprintln(errs, "rockpool: "+Plain(empty))
	return err
}

// Print writes what the API answered, for scripts, or else the table.
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
	if f.format() == "yaml" && !controls { // JSON is YAML too, and can tell those without writing them
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

// JSONLine writes what the API answered as one line of JSON.
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

// Plain leaves nothing in a cell that moves the cursor, reads in another order
// than it stands, or does worse: names and commands are others' words.
func Plain(cell string) string {
	shown := []rune(cell)
	for i, r := range shown {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || lies(at(shown, i-1), r, at(shown, i+1)) {
			shown[i] = '·'
		}
	}
	return string(shown)
}

// at returns the rune at i; 0 where there is none.
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

// Escape escapes what JSON lets stand but a terminal obeys or shows as
// something else, and reports whether any character is told in it that moves more than a line or a tab.
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
			if lies(before, r, after) {
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

// isControl reports whether what follows a backslash stands for a control
// character, a line's end and a tab aside.
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

// Ago tells a moment as its distance from now.
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
