package language_test

import (
	"os"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime/language"
)

// TestDocsListTheLanguages also loads the example in the documentation.
func TestDocsListTheLanguages(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/languages.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range language.Default().All() {
		quoted := func(names []string) string {
			if len(names) == 0 {
				return ""
			}
			return "`" + strings.Join(names, "`, `") + "`"
		}
		var environments []string
		for _, id := range r.Environments {
			environments = append(environments, string(id))
		}
		built := ""
		if len(r.Build) > 0 {
			built = "by " + quoted(r.Build[:1])
		}
		row := "| " + strings.Join([]string{"`" + r.ID + "`", quoted(r.Aliases), quoted(r.Extensions), quoted(environments), built}, " | ") + " |\n"
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/guides/languages.md has no row\n%s", row)
		}
	}
	_, after, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ := strings.Cut(after, "```")
	set, err := load(t, example)
	if err != nil {
		t.Fatal(err)
	}
	if _, known := set.ByFile("x.zig"); !known {
		t.Errorf("the example has no Zig:\n%s", example)
	}
}
