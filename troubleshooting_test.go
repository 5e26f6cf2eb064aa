package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTroubleshootingQuotesMessages checks that docs/guides/troubleshooting.md quotes messages as
// the program has them. A quoted message is code with a space in the first column of a table. "…"
// stands for any text.
func TestTroubleshootingQuotesMessages(t *testing.T) {
	page, err := os.ReadFile("docs/guides/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	source := program(t)
	code := regexp.MustCompile("`([^`]+)`")
	quoted := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.SplitN(line, "|", 3)
		if len(cells) < 3 || strings.TrimSpace(cells[0]) != "" {
			continue // not a row of a table
		}
		for _, message := range code.FindAllStringSubmatch(cells[1], -1) {
			if !strings.Contains(message[1], " ") || strings.HasPrefix(message[1], "rockpool ") {
				continue
			}
			quoted++
			for part := range strings.SplitSeq(message[1], "…") {
				if part = strings.Trim(part, " \""); !strings.Contains(source, part) {
					t.Errorf("%q isn't in the program's source: quote the message as it is now", part)
				}
			}
		}
	}
	if quoted < 20 {
		t.Errorf("the page quotes only %d messages", quoted)
	}
}

// program returns the program's Go source, without its tests.
func program(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "web" || path == "test" || path == "examples" || path == "data" || path == "dist"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
