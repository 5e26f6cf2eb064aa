package reference

import (
	"regexp"
	"slices"
	"strings"
)

// A table is one of Markdown.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// String returns the table, or "" without rows.
func (t table) String() string {
	if len(t.rows) == 0 {
		return ""
	}
	var out strings.Builder
	line := func(cells []string) {
		out.WriteString("|")
		for _, cell := range cells {
			cell = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`)
			if cell != "" {
				cell = " " + cell
			}
			out.WriteString(cell + " |")
		}
		out.WriteString("\n")
	}
	line(t.head)
	out.WriteString(strings.Repeat("|---", len(t.head)) + "|\n")
	for _, row := range t.rows {
		line(row)
	}
	return out.String()
}

// code returns a text as code; "" stays.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

var (
	// special matches what prose marks: code that is marked already, paths of documents, flags, variables,
	// metrics, and words in capitals.
	special = regexp.MustCompile("`[^`]*`" + `|docs/[a-z./-]+\.(?:md|yaml)|--[a-z][a-z0-9-]*(?:=[^\s,.;)"]+)?|\brockpool_[a-z_]+` +
		`|\$[A-Z][A-Z0-9_]*(?:/[\w./-]*\w)?|\b[a-z][a-z-]*[=:/]+[A-Z][A-Z0-9_]{2,}[^\s.]*|\b[A-Z][A-Z0-9_]{2,}\b(?:=\w+)?`)

	escaped = strings.NewReplacer("<", "&lt;", "*", `\*`)
)

// acronyms are words in capitals that aren't code.
var acronyms = strings.Fields("ACL API ASCII CPU DNS GNU HCL HTTP JSON NUL OCI PEM PKCE RFC SQL TCP TLS URL UTC UTF XML YAML")

// prose returns plain text as Markdown: flags, variables and values are code, and documents are links.
func prose(text string) string {
	var out strings.Builder
	for {
		at := special.FindStringIndex(text)
		if at == nil {
			out.WriteString(escaped.Replace(text))
			return out.String()
		}
		out.WriteString(escaped.Replace(text[:at[0]]))
		found := text[at[0]:at[1]]
		switch {
		case strings.HasPrefix(found, "docs/"):
			found = "[" + found + "](../" + strings.TrimPrefix(found, "docs/") + ")"
		case !strings.HasPrefix(found, "`") && !slices.Contains(acronyms, found):
			found = code(found)
		}
		out.WriteString(found)
		text = text[at[1]:]
	}
}

// wrap breaks the paragraphs of a text into lines of at most width characters. Indented lines stay as they are.
func wrap(text string, width int) string {
	var lines []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(paragraph, " ") {
			lines = append(lines, paragraph)
			continue
		}
		line, used := "", 0
		for _, word := range strings.Fields(paragraph) {
			n := len([]rune(word))
			if line != "" && used+1+n > width {
				lines = append(lines, line)
				line, used = "", 0
			}
			if line != "" {
				line, used = line+" ", used+1
			}
			line, used = line+word, used+n
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
