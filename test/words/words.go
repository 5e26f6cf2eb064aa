// Package words finds hard English in the texts of a source tree: banned phrases, long
// sentences and long lines of prose. It reads comments, documentation, descriptions of the
// schema, help texts and messages. Its only caller is its own test, which checks this tree.
package words

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	maxWords   = 30  // of one sentence
	maxColumns = 120 // of one line of prose
)

// A Finding is one place to rewrite.
type Finding struct {
	Path string
	Line int // counted from 1
	Rule string
	Text string // what breaks the rule
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.Path, f.Line, f.Rule, f.Text)
}

// A paragraph is connected prose and the line that it begins at. Its line breaks are those
// of the source, so an offset gives a line.
type paragraph struct {
	line    int
	text    string
	phrases bool // look for banned phrases only
}

func (p paragraph) lineAt(offset int) int {
	return p.line + strings.Count(p.text[:offset], "\n")
}

// Check returns what is hard to read in the file, in the order of its lines. The path's
// extension says how to find its texts. Check returns nothing for unknown formats, and an
// error for Go files that don't parse.
func Check(name string, source []byte) ([]Finding, error) {
	paragraphs, err := read(name, source)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}

	var found []Finding
	for _, p := range paragraphs {
		found = append(found, p.banned(name)...)
		if !p.phrases {
			found = append(found, p.relative(name)...)
			found = append(found, p.long(name)...)
			found = append(found, p.wide(name)...)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return a.Line - b.Line })
	return slices.Compact(found), nil
}

func read(name string, source []byte) ([]paragraph, error) {
	text := string(source)
	switch path.Ext(name) {
	case ".go":
		return readGo(name, source)
	case ".md":
		return readMarkdown(text), nil
	case ".graphqls":
		return readSchema(text), nil
	case ".ts", ".tsx", ".mjs", ".css", ".c", ".h":
		return append(lines(text), comments(text, "//")...), nil
	case ".sh", ".yaml", ".yml", ".service", ".socket", ".conf", "":
		return append(lines(text), comments(text, "#")...), nil
	}
	return nil, nil
}

func (p paragraph) banned(name string) []Finding {
	var found []Finding
	text := plain(p.text)
	if !anyPhrase().MatchString(text) {
		return nil
	}
	for _, rule := range phrases {
		for _, at := range rule.pattern.FindAllStringIndex(text, -1) {
			phrase := strings.Join(strings.Fields(text[at[0]:at[1]]), " ")
			found = append(found, Finding{name, p.lineAt(at[0]), "write " + rule.instead, phrase})
		}
	}
	return found
}

func (p paragraph) relative(name string) []Finding {
	var found []Finding
	for _, at := range relative.FindAllStringIndex(plain(p.text), -1) {
		found = append(found, Finding{name, p.lineAt(at[0]), "begin with the subject", beginning(p.text[at[0]:at[1]])})
	}
	return found
}

var (
	// An end of a sentence: the next one begins with a capital, a number, or quoted text.
	sentenceEnd = regexp.MustCompile("[.!?][)\"'`*]*\\s+[(\"'`*\\[]*[A-Z0-9`]")
	word        = regexp.MustCompile(`[\pL\pN]`)
)

func (p paragraph) long(name string) []Finding {
	var found []Finding
	begin := 0
	text := plain(p.text)
	ends := append(sentenceEnd.FindAllStringIndex(text, -1), []int{len(text), len(text)})
	for _, end := range ends {
		sentence := text[begin:end[0]]
		count := 0
		for _, field := range strings.Fields(sentence) {
			if word.MatchString(field) {
				count++
			}
		}
		if count > maxWords {
			line := p.lineAt(begin + len(sentence) - len(strings.TrimLeft(sentence, " \n\t.!?)*")))
			found = append(found, Finding{name, line, fmt.Sprintf("sentence of %d words (%d at most)", count, maxWords), beginning(sentence)})
		}
		begin = end[0]
	}
	return found
}

func (p paragraph) wide(name string) []Finding {
	var found []Finding
	for i, line := range strings.Split(p.text, "\n") {
		columns := len([]rune(strings.ReplaceAll(line, "\t", "    ")))
		if columns > maxColumns && strings.Contains(strings.TrimSpace(line[:maxColumns]), " ") {
			found = append(found, Finding{name, p.line + i, fmt.Sprintf("line of %d columns (%d at most)", columns, maxColumns), beginning(line)})
		}
	}
	return found
}

func beginning(text string) string {
	fields := strings.Fields(strings.TrimLeft(text, ".:;!? \n"))
	return strings.Join(fields[:min(len(fields), 8)], " ") + " …"
}

var (
	code   = regexp.MustCompile("`[^`\n]*`")
	target = regexp.MustCompile(`\]\([^)\s]*\)`)
)

// plain replaces code by one word and targets of links by nothing, with their length kept.
func plain(text string) string {
	text = code.ReplaceAllStringFunc(text, func(s string) string { return "`" + strings.Repeat("x", len(s)-2) + "`" })
	return target.ReplaceAllStringFunc(text, func(s string) string { return "]" + strings.Repeat(".", len(s)-1) })
}
